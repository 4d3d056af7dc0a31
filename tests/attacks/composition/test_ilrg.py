"""iLRG's counts are those of the equations one by one."""

import numpy as np
import torch

from fedleak.attacks.composition.ilrg import restored
from fedleak.core.seeding import generator_for


def test_counts_are_those_of_one_client_after_the_other() -> None:
    draw = generator_for(0, "ilrg")
    classes, sizes = 5, torch.tensor([6, 30, 12])
    soft = torch.randn(3, classes, classes, generator=draw, dtype=torch.float64).softmax(2)
    bias = 0.1 * torch.randn(3, classes, generator=draw, dtype=torch.float64)
    found = restored(soft, bias, sizes)
    for own, gradient, size, counts in zip(soft.numpy(), bias.numpy(), sizes.tolist(), found, strict=True):
        rows, values = [np.ones(classes)], [float(size)]
        for i in range(classes):
            rows.append(np.array([own[j, i] - (i == j) for j in range(classes)]))
            values.append(size * gradient[i])
        solved = np.linalg.pinv(np.stack(rows)) @ np.array(values)
        slow = [round(max(x, 0)) if round(max(x, 0)) <= size else 0 for x in solved]
        assert counts.tolist() == slow
