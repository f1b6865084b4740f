"""Coverage-guided fuzz targets: one module for each reader of bytes that come from outside."""
