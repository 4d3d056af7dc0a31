"""Lint of any message of a federation, without a model: what of it may be more of the data than an update is."""
