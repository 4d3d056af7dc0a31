"""Texts stand beside what was inferred of them, as text, where the network's own tokens are at hand."""

import dataclasses
from pathlib import Path

import torch

from fedleak.attacks.reconstruction.shown_texts import shown_texts
from fedleak.client.pretrained import PretrainedAlgorithm
from fedleak.core.view import RoundView
from tests.token_files import write_tokens
from tests.transformer_toys import algorithm, texts, view_of


def view_with(own: PretrainedAlgorithm) -> RoundView:
    return view_of(own, texts(2, 1))


def test_a_text_stands_beside_the_most_similar_reconstruction(tmp_path: Path) -> None:
    write_tokens(tmp_path, special=("[PAD]",))
    own = dataclasses.replace(algorithm(), folder=tmp_path)
    originals = [torch.tensor([[1, 2, 3, 0], [4, 5, 6, 0]]), torch.tensor([[6, 2]])]
    guesses = [torch.tensor([[4, 5, 2], [1, 2, 0]]), torch.zeros(0, 1, dtype=torch.int64)]
    rows = shown_texts(guesses, originals, view_with(own))
    shown = [(row["client"], row["text"], row["reconstruction"]) for row in rows]
    assert shown == [(0, "the cat sat", "the cat"), (0, "on a mat", "on a cat"), (1, "mat cat", "")]


def test_without_tokens_there_is_no_text(tmp_path: Path) -> None:
    for folder in (None, tmp_path):
        own = dataclasses.replace(algorithm(), folder=folder)
        assert shown_texts([torch.ones(1, 2)], [torch.ones(1, 2)], view_with(own)) == []


def test_few_texts_are_shown_and_long_ones_cut(tmp_path: Path) -> None:
    write_tokens(tmp_path, special=("[PAD]",))
    own = dataclasses.replace(algorithm(), folder=tmp_path)
    originals = [torch.full((20, 300), 2)]
    rows = shown_texts(originals, originals, view_with(own))
    assert len(rows) == 8
    assert len(str(rows[0]["text"])) == 400
