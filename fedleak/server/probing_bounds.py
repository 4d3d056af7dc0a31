"""Sample complexity bounds of identifying a client's vector (London 2020, Theorems 1 to 3).

Symbols: preference rates p ``(V,)``, batch size B, probability of failure delta in (0, 1), share epsilon of items that
may be wrong. For a client that likes more than half of its items, ``1 - 2p`` is negative; the theorems hold with its
absolute value if the server knows the client's leaning. All bounds are float64.

References:
    [London20].
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Noisy:
    """Parameters of Theorems 2 and 3.

    Attributes:
        scale: standard deviation of the noise, sigma.
        step: local learning rate times the loss's derivative at 0, ``alpha l'(0)``.
        items: number of items in the catalogue, I.
        largest: largest norm of an item vector, M.
    """

    scale: float
    step: float
    items: int
    largest: float

    def __post_init__(self) -> None:
        if self.step == 0:
            raise ValueError("expected a loss whose derivative at 0 is not zero (Assumption 2), got 0")
        if self.scale < 0 or self.items < 1 or self.largest <= 0:
            raise ValueError(f"expected scale >= 0, items >= 1 and largest > 0, got {self}")


def lean(rates: Tensor) -> Tensor:
    """``|1 - 2p|`` of preference rates ``(V,)``.

    Raises:
        ValueError: a rate is outside [0, 1], or exactly 1/2.
    """
    if bool(((rates < 0) | (rates > 1)).any()):
        raise ValueError("expected preference rates in [0, 1]")
    if bool((rates == 0.5).any()):
        raise ValueError("expected preference rates other than 1/2 (Assumption 1), got exactly 1/2")
    return (1 - 2 * rates.double()).abs()


def theorem_1(rates: Tensor, *, batch: int, delta: float) -> Tensor:
    """``(V,)`` interactions for error 0 without noise: ``2 ln(1/delta) / (B (1 - 2p)^2)``."""
    return 2 * math.log(1 / _probability(delta)) / (batch * lean(rates).square())


def theorem_2(
    rates: Tensor, tau: Tensor, noise: Noisy, *, batch: int, delta: float, beta: Tensor | None = None
) -> Tensor:
    """``(V,)`` interactions for error epsilon with noise in Protocol 1; infinite where tau is 0.

    The larger of ``2 ln(2/delta) / (B (1 - 2p - beta)^2)`` and ``2 sigma^2 M^2 ln(4 I/delta) / (B (alpha beta l'(0)
    tau)^2)``, for the `tolerance` ``tau (V,)`` and ``beta (V,)`` in (0, |1 - 2p|), by default the value with the
    smallest bound.

    Raises:
        ValueError: Assumption 1 does not hold, or delta or beta is out of range.
    """
    width = lean(rates)
    # Both terms without their denominators (1 - 2p - beta)^2 and beta^2.
    of_sampling = torch.as_tensor(2 * math.log(2 / _probability(delta)) / batch, dtype=torch.float64)
    noise_ratio = noise.largest * noise.scale / (noise.step * tau.double())
    of_noise = 2 * noise_ratio.square() * math.log(4 * noise.items / delta) / batch
    if beta is None:
        # One term increases with beta and the other decreases: the maximum is smallest where they are equal.
        return (of_sampling.sqrt() + of_noise.sqrt()).square() / width.square()
    if bool(((beta <= 0) | (beta >= width)).any()):
        raise ValueError("expected beta in (0, |1 - 2p|)")
    return torch.maximum(of_sampling / (width - beta).square(), of_noise / beta.double().square())


def theorem_3(rates: Tensor, tau: Tensor, labels: Tensor, noise: Noisy, *, delta: float) -> Tensor:
    """``(V,)`` interactions for error epsilon with noise in Protocol 3 (Equation 4); infinite where tau is 0.

    ``2 sigma^2 M^2 ln(2 I/delta) / (N (alpha (1 - 2p) l'(0) tau)^2)``, for ``labels (V,)`` labelled items N and the
    `tolerance` ``tau (V,)``.
    """
    noise_ratio = noise.largest * noise.scale / (noise.step * lean(rates) * tau.double())
    return 2 * noise_ratio.square() * math.log(2 * noise.items / _probability(delta)) / labels.double()


def tolerance(scores: Tensor, epsilon: float) -> Tensor:
    """``(V,)`` tau_c(epsilon): the supremum of tau such that ``|u.v| <= tau`` for at most a share epsilon of the items.

    The theorems hold with the supremum, because their proofs need ``|u.v| >= tau`` for the other items. It is infinite
    if all items may be wrong; ``scores (V, I)`` are ``u.v`` of every item.

    Raises:
        ValueError: epsilon is not in [0, 1].
    """
    if not 0 <= epsilon <= 1:
        raise ValueError(f"expected epsilon in [0, 1], got {epsilon:g}")
    sizes = scores.double().abs().sort(dim=1).values
    # The smallest items may be wrong, up to a share epsilon; the next one bounds tau.
    may_be_wrong = math.floor(epsilon * sizes.shape[1] + 1e-9)
    if may_be_wrong >= sizes.shape[1]:
        return torch.full_like(sizes[:, 0], torch.inf)
    return sizes[:, may_be_wrong]


def _probability(delta: float) -> float:
    if not 0 < delta < 1:
        raise ValueError(f"expected delta in (0, 1), got {delta:g}")
    return delta
