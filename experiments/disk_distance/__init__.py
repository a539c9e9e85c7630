"""Where the distance between disk models and measured drives comes from."""
