"""Records that an attack has found of one client."""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from fedleak.attacks.reconstruction.record_candidates import Candidate


@dataclass(frozen=True)
class FoundRecords:
    """Records of one client.

    Attributes:
        records: ``(M, D)`` float64.
        classes: ``(M,)`` int64, -1 if unknown.
        certain: ``(M,)`` whether each is certainly a record of the client.
        candidates: the same of images, with what their certainty stands on.
    """

    records: Tensor
    classes: Tensor
    certain: Tensor
    candidates: Sequence[Candidate] = ()
