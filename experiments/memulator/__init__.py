"""Griffin, Schindler, Schlosser, Bucy and Ganger, "Timing-Accurate Storage Emulation", FAST 2002, section 6."""
