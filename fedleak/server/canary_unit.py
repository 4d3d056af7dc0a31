"""Canary unit: one unit that only the target record excites, so that its update says whether a sum contains it."""

from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from fedleak.core.errors import require
from fedleak.core.ranges import NonNegativeInt, PositiveFloat
from fedleak.defenses.model_checks.commitment import Commitment
from fedleak.server.deviation import Notice
from fedleak.server.model_manipulation import FirstLayer, Model, ModelManipulation, SentModels, changed, enough

_LEAST = 1e-8
"""Change of the unit's bias, as a share of the layer's largest, below which it is rounding."""


@dataclass(frozen=True, kw_only=True, eq=False)
class CanaryUnit(ModelManipulation):
    """Canary gradient: one unit of the first layer is active for the target record and for no other.

    The row is ``(S + c I)^-1 (x - m)`` for the target x, with mean m and covariance S of the server's other examples
    and c a share of the mean variance; the bias is minus the middle between the unit's input for the target and its
    largest for these. The unit's update is zero unless a client of the sum has the target, whatever their number
    (`contains_target`).

    Read: the authors' code (github.com/pasquini-dario/EludingSecureAggregation, canary_attack.py), which trains all
    layers before the canary kernel of a convolutional network on shadow data for this; with a linear first layer, the
    discriminant has a closed form.

    Args:
        target: number of the server's own example that is the target.
        unit: number of the unit.
        ridge: c, as a share of the mean variance of an input.

    References:
        [Pasquini22], section 5.
    """

    name = "canary-unit"
    does = "sends a model with one unit that only a record of the server's choice excites"
    noticed = (
        Notice("client", "a model that no other client has, if only some get it and compare", (Commitment,)),
        Notice("auditor", "a step of the global model that the clients' updates do not explain"),
    )
    references = ("Pasquini22, section 5",)

    target: NonNegativeInt = 0
    unit: NonNegativeInt = 0
    ridge: PositiveFloat = 0.1

    def manipulated(self, model: Model, examples: Tensor, clients: Tensor, *, generator: Generator) -> SentModels:
        layer = FirstLayer.of(model)
        inputs = enough(examples, max(3, self.target + 1), self.name)
        units = len(model[layer.weight])
        require(
            self.unit < units, f"model.manipulation.unit below {units}", self.unit, "Set a unit of the first layer."
        )
        target = inputs[self.target]
        non_targets = torch.cat([inputs[: self.target], inputs[self.target + 1 :]])
        # The row of the linear discriminant, (S + c I)^-1 (x - m), as long as the layer's other rows.
        covariance = torch.cov(non_targets.T)
        eye = torch.eye(len(covariance), dtype=torch.float64)
        ridge = self.ridge * covariance.diagonal().mean() * eye
        row = torch.linalg.solve(covariance + ridge, target - non_targets.mean(0))
        weight = model[layer.weight].double().clone()
        bias = model[layer.bias].double().clone()
        row = row / row.norm() * weight.norm(dim=1).mean()
        weight[self.unit] = row
        # The threshold is in the middle between the target and the nearest other example.
        bias[self.unit] = -(target @ row + (non_targets @ row).max()) / 2
        return SentModels.same(changed(model, **{layer.weight: weight, layer.bias: bias}), clients)

    def contains_target(self, bias_change: Tensor) -> Tensor:
        """``(V,)`` bool, whether updates with a change ``(V, N)`` of the first layer's bias contain the target."""
        return bias_change[:, self.unit].abs() > _LEAST * bias_change.abs().amax(1)
