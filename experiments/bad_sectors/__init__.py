"""File systems on drives with bad sectors."""
