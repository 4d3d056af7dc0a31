"""Imprint: all units of the first layer measure one statistic, with biases at its quantiles."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Generator, Tensor

from fedleak.defenses.model_checks.nested_units import NestedUnits
from fedleak.defenses.model_checks.proportional_rows import ProportionalRows
from fedleak.defenses.model_checks.weight_law import WeightLaw
from fedleak.server.deviation import Notice
from fedleak.server.model_manipulation import FirstLayer, Model, ModelManipulation, SentModels, changed, enough

_EVERYONE = -10.0
"""Threshold of the first unit, in standard deviations: every record is above it."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Imprint(ModelManipulation):
    """Robbing the Fed: rows that are one statistic, biases at its quantiles, equal columns of the next layer.

    Unit j of N has the row w and the bias ``-q_j``, for a linear statistic ``s(x) = w^T x`` and its quantile q_j of
    level ``j / N``. It is active for the records with ``s(x) > q_j``. As all units have the same column of the next
    layer, a record changes all its active units in the same way, and the update of unit j minus that of unit j + 1
    holds only the records with a statistic between the two quantiles: often one, whatever the number of clients in a
    sum. Of B records with independent statistics, a share of about ``(1 - 1/N)^(B - 1)`` is alone in its bin.

    Read: the publication's code (github.com/lhfowl/robbing_the_fed, modifications/imprint.py, ``ImprintBlock``). It
    puts the block before the network; here, it is the first layer of an MLP, and the columns of the next layer, which
    map back to the image there, are one random vector.

    Args:
        statistic: ``brightness``: the mean of the inputs, the code's ``avg``; ``random``: a random direction.
        quantiles: of ``normal`` or ``laplace`` laws with the mean and standard deviation of the server's own examples,
            as in the code, or of the ``examples`` themselves.

    References:
        [Fowl22].
    """

    name = "imprint"
    does = "sends a first layer whose rows are all one statistic and whose biases are the statistic's quantiles"
    noticed = (
        Notice(
            "client",
            "rows of the first layer that are proportional to each other, and units whose records are nested",
            (ProportionalRows, NestedUnits, WeightLaw),
        ),
    )
    references = ("Fowl22, section 3",)

    statistic: Literal["brightness", "random"] = "brightness"
    quantiles: Literal["normal", "laplace", "examples"] = "examples"

    def manipulated(self, model: Model, examples: Tensor, clients: Tensor, *, generator: Generator) -> SentModels:
        layer = FirstLayer.of(model)
        units, width = model[layer.weight].shape
        row = statistic_row(self.statistic, width, generator)
        bounds = thresholds(enough(examples, 2, self.name) @ row, units, self.quantiles)
        column = next_column(bounds, len(model[layer.after]), generator)
        changes = {
            layer.weight: row.expand(units, width),
            layer.bias: -bounds,
            layer.after: column[:, None].expand(-1, units),
        }
        return SentModels.same(changed(model, **changes), clients)


def statistic_row(statistic: str, width: int, generator: Generator) -> Tensor:
    """``(D,)`` float64 weights of a linear statistic of a record."""
    if statistic == "brightness":
        return torch.full((width,), 1 / width, dtype=torch.float64)
    # A direction of mean 0, which does not measure brightness, and of a length of about 1.
    drawn = torch.randn(width, generator=generator, dtype=torch.float64)
    row: Tensor = (drawn - drawn.mean()) / drawn.std() / width**0.5
    return row


def thresholds(values: Tensor, units: int, law: str) -> Tensor:
    """``(N,)`` increasing quantiles of the levels ``j / N``, of a law fitted to ``values (M,)``."""
    levels = torch.arange(1, units, dtype=torch.float64) / units
    mean = values.mean()
    deviation = values.std()
    if law == "examples":
        inner = torch.quantile(values, levels)
    elif law == "normal":
        inner = mean + deviation * torch.special.ndtri(levels)
    else:
        # Laplace's quantile m - b sign(p - 1/2) ln(1 - 2 |p - 1/2|), of a scale b that is the deviation over sqrt 2.
        from_middle = levels - 0.5
        inner = mean - deviation / 2**0.5 * from_middle.sign() * (1 - 2 * from_middle.abs()).log()
    # The first unit has no quantile, as its level is 0: every record is above its threshold.
    return torch.cat([(mean + _EVERYONE * deviation)[None], inner])


def next_column(bounds: Tensor, outputs: int, generator: Generator) -> Tensor:
    """``(K,)`` random column of the next layer, the same for all units, so small that it gives outputs of about 1."""
    # A record at a threshold has the sum of the distances to all lower ones as the sum of its active units.
    activation = (bounds[1:, None] - bounds).clamp(min=0).sum(1).mean()
    drawn = torch.randn(outputs, generator=generator, dtype=torch.float64)
    return drawn.div(activation.clamp(min=torch.finfo(torch.float64).tiny))
