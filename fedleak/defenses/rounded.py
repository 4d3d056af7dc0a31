"""Updates in fewer digits."""

import dataclasses
from collections.abc import Callable
from typing import Literal

import torch

from fedleak.core.errors import require
from fedleak.core.ranges import PositiveInt
from fedleak.core.release import Release
from fedleak.defenses.base import Defense, Update

_MOST = 16
"""Largest number of bits: a float of half precision has as many, see `HalfPrecision`."""


class Rounded(Defense):
    """Quantisation: each number of the update is one of few multiples of its parameter's largest, rounded at random.

    The rounding goes up or down with the probability that leaves the mean unchanged.

    Args:
        bits: of each number, its sign included, at least 2.

    References:
        [Alistarh17], section 3.1, with the largest number in place of the norm.
    """

    def __init__(self, *, bits: PositiveInt) -> None:
        require(2 <= bits <= _MOST, f"Rounded.bits from 2 to {_MOST}", bits, "8 is common.")
        self.bits = bits

    def protect(self, update: Update, generators: Callable[[int], torch.Generator]) -> Update:
        levels = 2 ** (self.bits - 1) - 1  # one bit is the sign
        deltas = {}
        for name, delta in update.deltas.items():
            largest = delta.new_zeros(len(delta))
            if delta.numel():
                largest = delta.flatten(1).abs().amax(1)
            scale = (largest / levels).reshape(-1, *[1] * (delta.dim() - 1))
            # floor(x + u) with u uniform in [0, 1) is x on average.
            draws = torch.empty_like(delta)
            for client, client_draws in enumerate(draws):
                client_draws.copy_(torch.rand(client_draws.shape, generator=generators(client)))
            multiples = (delta / scale.where(scale > 0, 1) + draws).floor()
            deltas[name] = multiples.clamp(-levels, levels) * scale
        return dataclasses.replace(update, deltas=deltas)

    def releases(self, parameters: tuple[str, ...]) -> tuple[Release, ...]:
        """The bits of each number."""
        return (Release(bits=float(self.bits), parameters=parameters),)


class HalfPrecision(Defense):
    """The update as numbers of 16 bits, as systems send them to save traffic; it hides what is below their rounding.

    The server adds in float32.

    Args:
        format: ``float16`` has 11 binary digits and overflows above 65,504, ``bfloat16`` has 8.

    References:
        IEEE 754-2019, section 3.6, binary16.
    """

    def __init__(self, *, format: Literal["float16", "bfloat16"] = "float16") -> None:
        self.dtype = torch.float16 if format == "float16" else torch.bfloat16

    def protect(self, update: Update, generators: Callable[[int], torch.Generator]) -> Update:
        deltas = {name: value.to(self.dtype) for name, value in update.deltas.items()}
        return dataclasses.replace(update, deltas=deltas)

    def releases(self, parameters: tuple[str, ...]) -> tuple[Release, ...]:
        """The bits of each number; attacks also know its type."""
        return (Release(bits=16.0, parameters=parameters),)
