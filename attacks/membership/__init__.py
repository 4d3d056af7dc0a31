"""Attacks on membership: did a client train on something that the server has in mind?"""

from typing import TYPE_CHECKING

from protocol.exports import exports

if TYPE_CHECKING:
    from attacks.membership.retrieval import RetrievalFingerprint as RetrievalFingerprint

__all__ = exports(__name__)
