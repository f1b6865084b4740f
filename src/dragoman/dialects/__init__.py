"""One package per dialect, the catalogue of dialects, and modules that they share."""
