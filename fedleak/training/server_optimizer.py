"""Server aggregation: weighted sums of the clients' deltas, and the server optimizer."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from fedleak.core.errors import require
from fedleak.core.seeding import generator_for
from fedleak.defenses.base import Update

_NUMBERS_AT_ONCE = 2**19
"""Number of delta entries that are scaled at once, so that they fit in a processor's cache."""


@dataclass(frozen=True, kw_only=True)
class ServerOptimizer:
    """Server optimizer, which takes the negative averaged delta as a pseudo-gradient.

    Attributes:
        name: ``fedavg`` (adds the delta), ``fedavgm`` (with momentum) or ``fedadam``.
        learning_rate: server learning rate; 1 is plain FedAvg.
        momentum: momentum of FedAvgM.
        betas: decay rates of FedAdam.
        eps: FedAdam's adaptivity (tau).

    References:
        [McMahan17] (FedAvg).
        [Hsu19] (FedAvgM).
        [Reddi21] (FedAdam).
    """

    name: Literal["fedavg", "fedavgm", "fedadam"] = "fedavg"
    learning_rate: float = 1.0
    momentum: float = 0.9
    betas: tuple[float, float] = (0.9, 0.99)
    eps: float = 1e-3

    def __post_init__(self) -> None:
        require(self.learning_rate > 0, "server.learning_rate > 0", self.learning_rate, "1.0 is plain FedAvg.")

    def build(self, parameters: Iterable[torch.nn.Parameter]) -> torch.optim.Optimizer:
        """The server's optimizer over the global model."""
        if self.name == "fedadam":
            return torch.optim.Adam(parameters, lr=self.learning_rate, betas=self.betas, eps=self.eps)
        momentum = self.momentum if self.name == "fedavgm" else 0.0
        return torch.optim.SGD(parameters, lr=self.learning_rate, momentum=momentum)


@dataclass
class WeightedSum:
    """Sums over clients, the only values that are reduced over ranks.

    Attributes:
        deltas: sum of weight times delta by parameter, with the shape of the whole parameter.
        weight: scalar sum of the weights.
        squared_weight: scalar sum of the squared weights.
        squared_weight_of_rows: ``(rows,)`` sum of the squared weights of the clients that sent a row, by row parameter.
    """

    deltas: dict[str, Tensor]
    weight: Tensor
    squared_weight: Tensor
    squared_weight_of_rows: dict[str, Tensor]

    def add(self, other: "WeightedSum") -> "WeightedSum":
        """Adds the sum over other clients, in place."""
        for total, more in zip(self.tensors(), other.tensors(), strict=True):
            total.add_(more)
        return self

    def tensors(self) -> list[Tensor]:
        """All tensors, in the same order on every rank."""
        rows = [self.squared_weight_of_rows[name] for name in sorted(self.squared_weight_of_rows)]
        deltas = [self.deltas[name] for name in sorted(self.deltas)]
        return [*deltas, self.weight, self.squared_weight, *rows]


def weighted_sum(update: Update, weights: Tensor, model: Mapping[str, Tensor]) -> WeightedSum:
    """Weighted sum of the clients' deltas.

    Args:
        update: the deltas.
        weights: ``(C,)``.
        model: the global model, for the shapes of whole parameters.
    """
    sums = {}
    rows_squared = {}
    for name, delta in update.deltas.items():
        if name not in update.rows:
            with torch.autocast(delta.device.type, enabled=False):  # the server adds in full precision
                precise = weights.to(torch.promote_types(weights.dtype, delta.dtype))
                sums[name] = torch.einsum("c,c...->...", precise, delta.to(precise.dtype))
            continue
        sums[name] = torch.zeros_like(model[name])
        rows_squared[name] = weights.new_zeros(len(model[name]))
        # Of a table, a chunk of clients at a time; a row sums up the clients that have it.
        clients = max(1, _NUMBERS_AT_ONCE // max(1, delta[:1].numel()))
        chunks = zip(
            torch.split(update.rows[name], clients),
            torch.split(delta, clients),
            torch.split(weights, clients),
            strict=True,
        )
        for rows, part, weight in chunks:
            index = rows.clamp(min=0).flatten()
            # Padding, of row -1, has the weight 0.
            share = weight[:, None] * (rows >= 0)
            scaled = part * share.reshape(*rows.shape, *[1] * (part.dim() - 2))
            # Rows of several clients are added where they stand in the whole table.
            sums[name].index_add_(0, index, scaled.flatten(0, 1))
            rows_squared[name].index_add_(0, index, share.flatten() ** 2)
    return WeightedSum(sums, weights.sum(), (weights**2).sum(), rows_squared)


def add_background_noise(
    total: WeightedSum, scales: Mapping[str, float], *, secret: bytes, seed: int, round_number: int
) -> None:
    """Adds the noise on the rows that clients did not train to a weighted sum, see `fedleak.defenses.base.Update`.

    A sum of independent Gaussians is Gaussian, so one draw with the summed variance has the same distribution.
    """
    for name, scale in scales.items():
        generator = generator_for(secret, f"background:{name}", seed, round_number)
        # A row that a client did not train has its noise with the client's weight: summed variance scale^2 sum_c w_c^2.
        variance = (total.squared_weight - total.squared_weight_of_rows[name]).clamp(min=0)
        target = total.deltas[name]
        noise = torch.randn(target.shape, generator=generator).to(target)
        deviation = scale * variance.sqrt().reshape(-1, *[1] * (target.dim() - 1))
        target += deviation * noise
