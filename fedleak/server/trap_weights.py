"""Trap weights: units that are active for few records, because their negative weights outweigh the positive ones."""

from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from fedleak.core.ranges import PositiveFloat
from fedleak.defenses.model_checks.inactive_units import DeadUnits
from fedleak.defenses.model_checks.server_step import ServerStep
from fedleak.defenses.model_checks.weight_law import WeightLaw
from fedleak.server.deviation import Notice
from fedleak.server.model_manipulation import FirstLayer, Model, ModelManipulation, SentModels, changed


@dataclass(frozen=True, kw_only=True, eq=False)
class TrapWeights(ModelManipulation):
    """When the Curious Abandon Honesty: half of a row's weights negative, the other half s times their negative.

    For each unit, half of the inputs, drawn at random, get weights ``z = -|N(0, sigma^2)|`` and the other half
    ``-s z``, the same numbers in the same order; the bias is 0. With s below 1 and inputs in [0, 1], few records excite
    a unit, and often only one does, so that the ratio of its updates is the record. One of an odd number of inputs has
    no partner and gets a negative weight.

    Read: the publication's algorithm as two public codes have it (github.com/JonasGeiping/breaching,
    malicious_modifications/imprint.py, ``CuriousAbandonHonesty``, with a bias of 0; the code on LT codes,
    trapweights.py, ``mirrored_column``), not the paper's text. The next layer is that of the global model.

    Args:
        scale: s; breaching has 0.95. It depends on the data.
        deviation: sigma.

    References:
        [Boenisch23].
    """

    name = "trap-weights"
    does = "sends a first layer whose negative weights outweigh the positive ones, so that few records excite a unit"
    noticed = (
        Notice(
            "client",
            "weights of another law than before, a large step, and units that few own records excite",
            (WeightLaw, ServerStep, DeadUnits),
        ),
    )
    references = ("Boenisch23, algorithm 1",)
    uses_examples = False

    scale: PositiveFloat = 0.95
    deviation: PositiveFloat = 0.5

    def manipulated(self, model: Model, examples: Tensor, clients: Tensor, *, generator: Generator) -> SentModels:
        layer = FirstLayer.of(model)
        units, width = model[layer.weight].shape
        # Half of a row's weights are negative, the others the same numbers with the other sign, times s.
        negative = -self.deviation * torch.randn(units, width - width // 2, generator=generator).abs()
        positive = -self.scale * negative[:, : width // 2]
        # In a random order, which differs from row to row.
        order = torch.rand(units, width, generator=generator).argsort(1)
        weight = torch.empty(units, width).scatter_(1, order, torch.cat([negative, positive], dim=1))
        sent = changed(model, **{layer.weight: weight, layer.bias: torch.zeros(units)})
        return SentModels.same(sent, clients)
