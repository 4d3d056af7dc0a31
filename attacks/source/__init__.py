"""Attacks on the source of records: which client holds a record?"""

from typing import TYPE_CHECKING

from fedleak.core.exports import exports

if TYPE_CHECKING:
    from fedleak.attacks.source.source_inference import CandidateSource as CandidateSource
    from fedleak.attacks.source.source_inference import RandomSource as RandomSource
    from fedleak.attacks.source.source_inference import SmallestLoss as SmallestLoss

__all__ = exports(__name__)
