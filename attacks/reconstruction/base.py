"""The base class of attacks that reconstruct training examples, and the estimate of any number of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from attacks.base import Attack
from attacks.estimates import Estimate
from attacks.reconstruction.estimates import ReconstructionEstimate


@dataclass(frozen=True, kw_only=True)
class ReconstructionAttack(Attack):
    """Base class of attacks that reconstruct training examples."""

    family = "reconstruction"
    estimates: ClassVar[type[Estimate]] = ReconstructionEstimate


def reconstruction(
    records: Sequence[Tensor], *, labels: Sequence[Tensor] | None = None, certified: Sequence[Tensor] | None = None
) -> ReconstructionEstimate:
    """Estimate of any number of records of each client.

    Args:
        records: ``(M_v, *shape)`` of each client, one shape; an empty tensor ``(0, *shape)`` for none.
        labels: ``(M_v,)`` classes of each client's records; None if unknown.
        certified: ``(M_v,)`` bool, whether each record is certain; None for no record.
    """
    count = torch.tensor([len(own) for own in records], dtype=torch.int64)
    classes = [torch.full((len(own),), -1) for own in records] if labels is None else labels
    sure = [torch.zeros(len(own), dtype=torch.bool) for own in records] if certified is None else certified
    return ReconstructionEstimate(
        records=pad_sequence(list(records), batch_first=True),
        labels=pad_sequence([own.long() for own in classes], batch_first=True, padding_value=-1),
        certified=pad_sequence(list(sure), batch_first=True),
        count=count,
    )
