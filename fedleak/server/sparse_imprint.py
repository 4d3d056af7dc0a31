"""Sparse imprint: each client gets units of its own, so that a sum keeps the clients apart."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Generator, Tensor

from fedleak.core.errors import require
from fedleak.core.ranges import PositiveInt
from fedleak.defenses.model_checks.commitment import Commitment
from fedleak.defenses.model_checks.inactive_units import DeadUnits
from fedleak.defenses.model_checks.nested_units import NestedUnits
from fedleak.defenses.model_checks.proportional_rows import ProportionalRows
from fedleak.defenses.model_checks.weight_law import WeightLaw
from fedleak.server.deviation import Notice
from fedleak.server.imprint import next_column, statistic_row, thresholds
from fedleak.server.model_manipulation import FirstLayer, Model, ModelManipulation, SentModels, changed, enough

_DEAD = -1.0
"""Bias of the units of other clients, whose rows are zero."""


@dataclass(frozen=True, kw_only=True, eq=False)
class SparseImprint(ModelManipulation):
    """LOKI: an imprint on units of its own for each client, all others dead, so that a sum keeps clients apart.

    Client c of C gets an imprint (`Imprint`) on `units` units from unit ``c * units``, and rows of zeros with a
    negative bias on all others. The sum of the updates has each client's bins in rows of their own: the number of
    clients in the sum does not matter. Of a client's B records, a share of about ``(1 - 1/units)^(B - 1)`` is alone in
    its bin.

    Read: the abstract of LOKI; no code. LOKI gives each client its own convolution kernels before a linear layer that
    all share; here, with a linear first layer, the linear layer itself differs.

    Args:
        units: units of each client; None for the same share of all of them.
        participants: clients in each sum, consecutive ones of a cohort as in `SecureSum`; the clients of different sums
            share units. None for all clients of the round.
        statistic: see `Imprint`.
        quantiles: see `Imprint`.

    References:
        [Zhao24].
    """

    name = "sparse-imprint"
    does = "sends each client an imprint on units of its own, and all other units dead"
    noticed = (
        Notice(
            "client",
            "rows of the first layer that are proportional to each other, and dead units",
            (ProportionalRows, NestedUnits, DeadUnits, WeightLaw),
        ),
        Notice("client", "a model that no other client has, if two of them compare what they received", (Commitment,)),
        Notice("auditor", "models by client in the recording"),
    )
    references = ("Zhao24, section IV",)

    units: PositiveInt | None = None
    participants: PositiveInt | None = None
    statistic: Literal["brightness", "random"] = "brightness"
    quantiles: Literal["normal", "laplace", "examples"] = "examples"

    def manipulated(self, model: Model, examples: Tensor, clients: Tensor, *, generator: Generator) -> SentModels:
        layer = FirstLayer.of(model)
        total, width = model[layer.weight].shape
        participants = max(self.participants or len(clients), 1)
        units = total // participants if self.units is None else self.units
        require(
            units >= 2 and units * participants <= total,
            f"at least 2 units for each of {participants} clients, of {total} in the first layer",
            f"{units} units",
            "Set model.network.hidden higher, model.manipulation.units or data.clients_per_round lower.",
        )
        # The imprint, which is the same for all clients.
        row = statistic_row(self.statistic, width, generator)
        bounds = thresholds(enough(examples, 2, self.name) @ row, units, self.quantiles)
        column = next_column(bounds, len(model[layer.after]), generator)
        # One model for each client of a sum, with the imprint on that client's units and all others dead.
        weight = torch.zeros(participants, total, width, dtype=model[layer.weight].dtype)
        bias = torch.full((participants, total), _DEAD, dtype=torch.float64)
        for client in range(participants):
            units_of_client = slice(client * units, (client + 1) * units)
            weight[client, units_of_client] = row.to(weight)
            bias[client, units_of_client] = -bounds
        # What follows is the same in all models.
        common = changed(model, **{layer.after: column[:, None].expand(-1, total)})
        models = {name: parameter.expand(participants, *parameter.shape) for name, parameter in common.items()}
        models[layer.weight] = weight.to(model[layer.weight])
        models[layer.bias] = bias.to(model[layer.bias])
        return SentModels(models=models, index=torch.arange(len(clients)) % participants, clients=clients)
