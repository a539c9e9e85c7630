"""System calls that are recorded in a guest, and their replay beside the program itself."""
