"""One package for each dialect, the catalogue of them all, and the kit that they share."""
