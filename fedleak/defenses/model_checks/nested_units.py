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
        size = active.sum(0)
        kept = ((size >= 2) & (size <= len(active) - 2)).nonzero().flatten()
        kept = kept[:: max(1, -(-len(kept) // _MOST_UNITS))]
        if len(kept) < 2:
            return 0.0
        active, size = active[:, kept], size[kept]
        nested = (active.T @ active).eq(size[:, None].minimum(size)).sum() - len(kept)
        return float(nested) / (len(kept) * (len(kept) - 1))
