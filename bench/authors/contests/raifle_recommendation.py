"""RAIFLE's gradient matching for recommendation: L-BFGS from the same starting points."""

from collections.abc import Callable

import numpy as np
import torch

from bench.authors.contest import Comparison, Contest
from bench.authors.host import Arrays
from bench.authors.users import compared_interactions, user_inputs, user_view
from fedleak.attacks.interactions.estimates import InteractionEstimate
from fedleak.attacks.recommendation.raifle import Raifle


class RaifleRecommendation(Contest):
    """Four users of FNCF, 100 iterations of the paper's 1,000, which take two minutes a user in the authors' code."""

    name = "raifle-recommendation"
    paper = "RAIFLE, section VI.A"
    authors = "raifle"
    theirs = "bench.authors.drivers.raifle_recommendation"
    repeats = 3

    def write(self) -> tuple[Arrays, Arrays]:
        inputs, truth = user_inputs(victims=4)
        return {**inputs, "iterations": np.array(100)}, truth

    def compare(self, truth: Arrays, ours: Arrays, theirs: Arrays) -> list[Comparison]:
        return compared_interactions(truth, ours, theirs, tolerance=0.01)


def prepare(inputs: Arrays) -> Callable[[], Arrays]:
    """The starting points are the first random numbers of the seed, the users' vector the next."""
    attack, view = Raifle(max_iter=int(inputs["iterations"]), accelerator="cpu"), user_view(inputs)

    def run() -> Arrays:
        estimate = attack(view, generator=torch.Generator().manual_seed(int(inputs["seed"])))
        assert isinstance(estimate, InteractionEstimate)
        return {"scores": estimate.scores.numpy()}

    return run
