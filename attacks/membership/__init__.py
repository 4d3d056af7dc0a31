"""Attacks on membership: did a client train on something that the server has in mind?"""

from attacks.membership.retrieval import RetrievalFingerprint

__all__ = ["RetrievalFingerprint"]
