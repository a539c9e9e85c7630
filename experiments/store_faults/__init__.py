"""Stores of a server whose system calls fail, judged by a client that knows what was promised."""
