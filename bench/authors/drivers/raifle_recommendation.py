"""RAIFLE's code for recommendation: the loop of its notebook over users, without a defence."""

from collections.abc import Callable

import numpy as np
import torch

from bench.authors.drivers.raifle_users import CODE, LEARNING_RATE, local_training, victims
from bench.authors.drivers.sources import authors_modules
from bench.authors.host import Arrays


def prepare(inputs: Arrays) -> Callable[[], Arrays]:
    """The random numbers are those of fedleak's side: row by row of a table of starting points, then a user vector."""
    train = local_training(inputs)
    (attack,) = authors_modules(CODE, "attack")

    shape, seed = inputs["served"].shape, int(inputs["seed"])
    torch.manual_seed(seed)
    torch.rand(shape)
    user = torch.rand(inputs["deltas"].shape[2], requires_grad=True)

    def run() -> Arrays:
        scores = np.zeros(shape, np.float32)
        for number, (items, target) in enumerate(victims(inputs)):
            torch.manual_seed(seed)
            torch.rand(number * shape[1])
            scale = max(torch.Tensor([1.0]), torch.Tensor([1e02]) / torch.linalg.vector_norm(target, dim=1).mean())
            found, _ = attack.reconstruct_interactions(
                lambda interactions, items=items: train(user, items, interactions) / LEARNING_RATE,
                target / LEARNING_RATE,
                len(items),
                lr=1e-01,
                max_iter=int(inputs["iterations"]),
                num_rounds=1,
                loss_fn=lambda a, b, scale=scale: torch.nn.functional.pairwise_distance(a, b).mean() * scale,
                return_raw=True,
            )
            scores[number, : len(items)] = found.numpy()
        return {"scores": scores}

    return run
