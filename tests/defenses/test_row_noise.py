"""Equation 3: noise where something changed, zero where nothing did."""

import pytest
import torch

from fedleak.core.errors import InputError
from fedleak.core.seeding import generator_for
from fedleak.core.view import ITEM_EMBEDDING
from fedleak.defenses.base import Update
from fedleak.defenses.row_noise import RowNoise


def test_only_changed_rows_are_noised_and_with_the_scale_that_is_public() -> None:
    deltas = torch.zeros(2, 5000, 4)
    deltas[:, ::2] = 1.0
    rows = torch.arange(5000).expand(2, -1)
    defense = RowNoise(scale=0.3)
    sent = defense.protect(
        Update({ITEM_EMBEDDING: deltas.clone()}, {ITEM_EMBEDDING: rows}), lambda c: generator_for(0, "n", c)
    )
    noisy = sent.deltas[ITEM_EMBEDDING]
    assert torch.equal(noisy[:, 1::2], deltas[:, 1::2])
    noise = noisy[:, ::2] - 1
    assert abs(float(noise.mean())) < 0.01
    assert float(noise.std()) == pytest.approx(0.3, rel=0.02)
    assert not torch.equal(noise[0], noise[1])
    assert defense.releases((ITEM_EMBEDDING,))[0].noise_scale == 0.3
    assert sent.background_scale == {}


def test_no_noise_changes_nothing_and_less_than_none_is_refused() -> None:
    update = Update({ITEM_EMBEDDING: torch.ones(1, 2, 3)})
    assert RowNoise(scale=0).protect(update, lambda _: torch.Generator()) is update
    assert RowNoise(scale=0).releases((ITEM_EMBEDDING,)) == ()
    with pytest.raises(InputError, match="scale"):
        RowNoise(scale=-1)
