"""Texts as the engine trains on them: each device with its own words' rows of the table."""

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from datamodules.cohort import Cohort

WORDS = "embedding.weight"
"""Public table of the words' vectors, in every learner of texts."""


def text_cohort(round_number: int, clients: Tensor, features: Tensor, labels: Tensor, examples: Tensor) -> Cohort:
    """Devices with texts.

    Args:
        round_number: number of the round.
        clients: ``(C,)`` numbers of the devices.
        features: ``(M, L)`` int64 token numbers of a pool of texts, padded with 0.
        labels: ``(M,)`` ratings.
        examples: ``(C, N)`` int64, what each device holds of the pool, padded with -1 at the end.

    Returns:
        ``examples["token"]`` ``(C, N, L)``; ``examples["place"]`` the same words as places in the device's rows, the
        padding's included; ``examples["label"]`` ``(C, N)``.
    """
    mask = examples >= 0
    token = features[examples.clamp(min=0)] * mask[..., None]
    longest = int((token > 0).sum(2).max()) if token.numel() else 0
    token = token[..., :longest]
    tables, places = zip(*(torch.unique(own, return_inverse=True) for own in token), strict=True)
    rows = pad_sequence(list(tables), batch_first=True, padding_value=-1)
    fields = {"token": token, "place": torch.stack(places), "label": labels[examples.clamp(min=0)].float()}
    return Cohort(round_number, clients, fields, mask, {WORDS: rows})
