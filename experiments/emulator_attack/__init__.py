"""What clients that attack an emulator server do to another client of it."""
