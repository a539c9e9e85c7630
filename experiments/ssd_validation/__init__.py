"""Solid-state drives as they were measured, and the models of them."""
