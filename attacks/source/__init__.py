"""Attacks on the source of records: which client holds a record?"""

from typing import TYPE_CHECKING

from protocol.exports import exports

if TYPE_CHECKING:
    from attacks.source.source_inference import CandidateSource as CandidateSource
    from attacks.source.source_inference import RandomSource as RandomSource
    from attacks.source.source_inference import SmallestLoss as SmallestLoss

__all__ = exports(__name__)
