"""Arrays made by other authors' code, unchanged, on drawn inputs; ``provenance`` in each names the code."""
