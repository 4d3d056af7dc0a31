"""Names of what a recording holds of canaries."""

CANARY_PSEUDONYMS = "canary_pseudonyms"
"""Auxiliary ``(N,)``: pseudonyms of the canaries."""
