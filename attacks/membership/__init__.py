"""Attacks on retrieval: did a client retrieve a certain document? For training records see record-membership."""

from typing import TYPE_CHECKING

from fedleak.core.exports import attach

if TYPE_CHECKING:
    from fedleak.attacks.membership.retrieval import RetrievalFingerprint as RetrievalFingerprint
else:
    __getattr__, __dir__, __all__ = attach(
        __name__,
        {
            "RetrievalFingerprint": "fedleak.attacks.membership.retrieval",
        },
    )
