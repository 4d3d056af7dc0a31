"""Units whose sets of examples are nested, as those of thresholds of one statistic are."""

from fedleak.defenses.model_checks.base import ModelCheck, ReceivedModel

_MOST_UNITS = 1000
"""Units that are compared in pairs; of more, evenly spaced ones."""


class NestedUnits(ModelCheck):
    """Share of pairs of units of which one is active for all own examples that excite the other, in [0, 1].

    Units whose biases are quantiles of one statistic, in any order, are all nested. Only units count that are active
    for at least two examples and silent for at least two.
    """

    name = "nested-units"

    def statistic(self, received: ReceivedModel) -> float:
        active = received.active.float()
        examples_of_unit = active.sum(0)
        # Units of almost all or almost no examples are nested in others by chance.
        has_both = (examples_of_unit >= 2) & (examples_of_unit <= len(active) - 2)
        units = has_both.nonzero().flatten()
        units = units[:: max(1, -(-len(units) // _MOST_UNITS))]
        if len(units) < 2:
            return 0.0
        # Two sets are nested if they share as many examples as the smaller one has; a unit with itself does not count.
        active = active[:, units]
        examples_of_unit = examples_of_unit[units]
        shared = active.T @ active
        smaller = examples_of_unit[:, None].minimum(examples_of_unit)
        nested = shared.eq(smaller).sum() - len(units)
        return float(nested) / (len(units) * (len(units) - 1))
