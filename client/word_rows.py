"""Cohorts of texts in which each device has the rows of its own words in the embedding table."""

import dataclasses

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from client.cohort import Cohort

WORDS = "embedding.weight"
"""Public table of word vectors in every learner of texts."""


def text_cohort(round_number: int, clients: Tensor, features: Tensor, labels: Tensor, examples: Tensor) -> Cohort:
    """Cohort of devices with texts of a pool.

    Args:
        round_number: number of the round.
        clients: ``(C,)`` numbers of the devices.
        features: ``(M, L)`` int64 token numbers, padded with 0.
        labels: ``(M,)`` ratings.
        examples: ``(C, N)`` int64 positions in the pool of each device's texts, padded with -1 at the end.
    """
    mask = examples >= 0
    tokens = features[examples.clamp(min=0)] * mask[..., None]
    fields = {"tokens": tokens, "label": labels[examples.clamp(min=0)].float()}
    return with_word_rows(Cohort(round_number, clients, fields, mask))


def with_word_rows(cohort: Cohort) -> Cohort:
    """Adds each device's words as rows of the table, and cuts padding after the longest text.

    Args:
        cohort: devices whose ``examples["tokens"]`` ``(C, N, L)`` are token numbers, padded with 0.

    Returns:
        The cohort with ``examples["place"]`` ``(C, N, L)``: positions of the same words among the device's rows, which
        include that of padding.
    """
    tokens = cohort.examples["tokens"]
    longest = int((tokens > 0).sum(2).max()) if tokens.numel() else 0
    tokens = tokens[..., :longest].contiguous()
    tables, places = [], []
    for own in tokens:
        table, place = torch.unique(own, return_inverse=True)
        tables.append(table)
        places.append(place)
    rows = pad_sequence(tables, batch_first=True, padding_value=-1) if tables else tokens.new_zeros(0, 0)
    fields = {**cohort.examples, "tokens": tokens, "place": torch.stack(places) if places else tokens}
    return dataclasses.replace(cohort, examples=fields, rows={**cohort.rows, WORDS: rows})
