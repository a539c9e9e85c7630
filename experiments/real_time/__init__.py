"""How true the time of a served device is, as a client sees it that knows nothing of us."""
