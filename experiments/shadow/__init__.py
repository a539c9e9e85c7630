"""Agrawal, Arulraj, Arpaci-Dusseau and Arpaci-Dusseau, "Emulating Goliath Storage Systems with David", section 6.1."""
