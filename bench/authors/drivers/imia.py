"""RAIFLE's port of IMIA, on each user with a random vector from N(0, 1)."""

import random
from collections.abc import Callable

import numpy as np
import torch

from bench.authors.drivers.raifle_users import CODE, local_training, victims
from bench.authors.drivers.sources import authors_modules
from bench.authors.host import Arrays


def prepare(inputs: Arrays) -> Callable[[], Arrays]:
    train = local_training(inputs)
    (attack,) = authors_modules(CODE, "attack")

    def run() -> Arrays:
        torch.manual_seed(int(inputs["seed"]))
        random.seed(int(inputs["seed"]))
        scores = np.zeros(inputs["served"].shape, np.float32)
        for number, (items, target) in enumerate(victims(inputs)):
            user = torch.randn(items.shape[1], requires_grad=True)
            found = attack.interaction_mia_fedrec(
                lambda labels, user=user, items=items: train(user, items, labels).detach(), target, len(items)
            )
            scores[number, : len(items)] = found.numpy()
        return {"scores": scores}

    return run
