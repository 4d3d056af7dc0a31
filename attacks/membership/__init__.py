"""Attacks on retrieval: did a client retrieve a certain document? For training records see record-membership."""

from typing import TYPE_CHECKING

from fedleak.core.exports import exports

if TYPE_CHECKING:
    from fedleak.attacks.membership.retrieval import RetrievalFingerprint as RetrievalFingerprint

__all__ = exports(__name__)
