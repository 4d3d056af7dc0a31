"""Attacks on the source of records: which client holds a record?"""

from typing import TYPE_CHECKING

from fedleak.core.exports import attach

if TYPE_CHECKING:
    from fedleak.attacks.source.source_inference import CandidateSource as CandidateSource
    from fedleak.attacks.source.source_inference import RandomSource as RandomSource
    from fedleak.attacks.source.source_inference import SmallestLoss as SmallestLoss
else:
    __getattr__, __dir__, __all__ = attach(
        __name__,
        {
            "CandidateSource": "fedleak.attacks.source.source_inference",
            "RandomSource": "fedleak.attacks.source.source_inference",
            "SmallestLoss": "fedleak.attacks.source.source_inference",
        },
    )
