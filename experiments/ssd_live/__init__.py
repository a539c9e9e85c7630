"""A flash drive under fio in a guest, beside its simulation and the measured drive."""
