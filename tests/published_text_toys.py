"""A tiny GPT-2 that clients train whole on texts, sent by an honest server and by one that sorts their words."""

import functools
from typing import Any

import torch
from torch import Tensor

from fedleak.attacks.reconstruction.toy import toy
from fedleak.core.view import RoundView


@functools.cache
def imprinted_texts() -> tuple[RoundView, dict[str, Tensor]]:
    """Two clients with three texts of six words; the server made the network."""
    return toy("imprinted-texts")


@functools.cache
def short_texts() -> tuple[RoundView, dict[str, Tensor]]:
    """Two clients with a text of five words."""
    return toy("short-texts")


def metric(estimate: Any, view: RoundView, truth: dict[str, Tensor], name: str) -> list[float]:
    """A metric of each client."""
    values: list[float] = estimate.score(view, truth).metrics[name].tolist()
    return values


def generator(seed: int = 0) -> torch.Generator:
    """A source of randomness."""
    return torch.Generator().manual_seed(seed)
