"""Rows of a layer that point in the same direction."""

import torch

from fedleak.defenses.model_checks.base import ModelCheck, ReceivedModel


class ProportionalRows(ModelCheck):
    """Mean over the first layer's rows of the largest absolute cosine with another row, in [0, 1].

    An imprint has 1, because all rows are one statistic; rows of zeros are left out. Of drawn rows of D numbers, the
    largest cosine of N is about ``sqrt(2 ln(N) / D)``, so small convolutions have a large value without a manipulation:
    the threshold is that of honest rounds of the same network.
    """

    name = "proportional-rows"
    reads_examples = False

    def statistic(self, received: ReceivedModel) -> float:
        weight = next(parameter for parameter in received.model.values() if parameter.dim() > 1)
        rows = weight.flatten(1).float()
        rows = rows[rows.any(1)]
        if len(rows) < 2:
            return 0.0
        directions = torch.nn.functional.normalize(rows)
        # Each row's cosine with itself, on the diagonal, does not count.
        cosines = (directions @ directions.T).fill_diagonal_(0)
        return float(cosines.abs().amax(1).mean())
