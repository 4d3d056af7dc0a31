"""Soliton biases: each unit is active for a number of records that the robust soliton law draws."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Generator, Tensor

from fedleak.core.ranges import AtLeastTwo, OpenUnitInterval, PositiveFloat
from fedleak.defenses.model_checks.inactive_units import DeadUnits, LoneUnits
from fedleak.defenses.model_checks.weight_law import WeightLaw
from fedleak.server.deviation import Notice
from fedleak.server.model_manipulation import FirstLayer, Model, ModelManipulation, SentModels, changed, enough

_ALL = 3.0
"""Standard deviations below the mean of a threshold that all records pass."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Soliton(ModelManipulation):
    """Biases ``b_j = -mu_j - sigma_j Phi^-1(1 - d_j / B)`` with degrees d_j of the robust soliton law; rows unchanged.

    Unit j is then active for about d_j of B records. With these degrees, a receiver that subtracts what it found finds
    almost all records of a sum, as with the packets of a fountain code: some units have one record, the others have
    one after the subtractions. mu_j and sigma_j are mean and standard deviation of the unit's input ``w_j^T x``.

    Read: the code (github.com/SaeedShariati/Gradient-Inversion-via-LT-Codes, trapweights.py,
    ``robust_soliton_degrees``, ``analytic_biases`` and ``calibrate_biases``), not the report. The next layer is that of
    the global model.

    Args:
        records: B, the number of records in the update or in the sum.
        inputs: ``uniform``: independent inputs uniform in [0, 1], without data (the code's ``soliton_free``);
            ``normal``: mu_j and sigma_j of the server's own examples; ``examples``: the quantile itself of the units'
            inputs for these examples (``soliton_data``, where there are as many examples as records).
        c: constant of the robust soliton law.
        failure: delta of that law, its bound of the probability of failure.

    References:
        [LTCodes26]. [Luby02], for the law.
    """

    name = "soliton"
    does = "changes only the biases of the first layer, so that units are active for numbers of records of one law"
    noticed = (
        Notice(
            "client",
            "biases of another law than before, and units that none or one of the own records excites",
            (WeightLaw, DeadUnits, LoneUnits),
        ),
    )
    references = ("LTCodes26",)

    records: AtLeastTwo
    inputs: Literal["uniform", "normal", "examples"] = "examples"
    c: PositiveFloat = 0.05
    failure: OpenUnitInterval = 0.4

    def manipulated(self, model: Model, examples: Tensor, clients: Tensor, *, generator: Generator) -> SentModels:
        layer = FirstLayer.of(model)
        weight = model[layer.weight].double()
        degrees = soliton_degrees(len(weight), self.records, self.c, self.failure, generator)
        share = degrees.double() / self.records  # d_j / B
        # The threshold of unit j is the quantile of level 1 - d_j / B of its input.
        if self.inputs == "examples":
            unit_inputs = enough(examples, 2, self.name) @ weight.T
            quantiles = []
            for inputs_of_unit, unit_share in zip(unit_inputs.T, share, strict=True):
                quantiles.append(torch.quantile(inputs_of_unit, 1 - unit_share))
            bounds = torch.stack(quantiles)
        else:
            if self.inputs == "uniform":
                # Mean 1/2 and variance 1/12 of each input.
                mean = weight.sum(1) / 2
                deviation = (weight.square().sum(1) / 12).sqrt()
            else:
                unit_inputs = enough(examples, 2, self.name) @ weight.T
                mean = unit_inputs.mean(0)
                deviation = unit_inputs.std(0)
            # A unit for all records has the quantile of level 0, which is minus infinity.
            bounds = mean + deviation * torch.special.ndtri(1 - share).clamp(min=-_ALL)
        return SentModels.same(changed(model, **{layer.bias: -bounds}), clients)


def soliton_degrees(units: int, records: int, c: float, failure: float, generator: Generator) -> Tensor:
    """``(N,)`` int64 degrees from 1 to B of the robust soliton law.

    With ``R = c ln(B / delta) sqrt(B)`` and ``k = B / R`` it is proportional to ``rho(d) + tau(d)``:
    ``rho(1) = 1 / B``, ``rho(d) = 1 / (d (d - 1))``; ``tau(d) = R / (d B)`` below k, ``R ln(R / delta) / B`` at k, and
    0 above.
    """
    degree = torch.arange(1, records + 1, dtype=torch.float64)
    # The ideal law rho.
    ideal = 1 / (degree * (degree - 1)).clamp(min=1)
    ideal[0] = 1 / records
    # The addition tau, with the expected ripple R and its spike at k.
    size = torch.tensor(records, dtype=torch.float64)
    ripple = c * (size / failure).log() * size.sqrt()
    spike = min(max(int((size / ripple).round()), 2), records)
    robust = (ripple / (degree * size)).where(degree < spike, 0.0)
    robust[spike - 1] = (ripple * (ripple / failure).log() / size).clamp(min=0)
    return torch.multinomial(ideal + robust, units, replacement=True, generator=generator) + 1
