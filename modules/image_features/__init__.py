"""Networks by name whose features clients rank images by, and the images sent with their features, cached on disk."""
