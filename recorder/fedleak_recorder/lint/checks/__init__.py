"""Checks of any message, one a file: each has a function ``findings(message, settings)``, and is found by looking."""
