"""Attacks on membership: is the one thing that the server has in mind among a client's data?"""

from typing import TYPE_CHECKING

from protocol.exports import exports

if TYPE_CHECKING:
    from attacks.membership.retrieval import RetrievalFingerprint as RetrievalFingerprint

__all__ = exports(__name__)
