"""IMIA in RAIFLE's port: random guesses, confirmed by a shadow client's update."""

from collections.abc import Callable

import torch

from bench.authors.contest import Comparison, Contest
from bench.authors.host import Arrays
from bench.authors.users import compared_interactions, user_inputs, user_view
from fedleak.attacks.interactions.estimates import InteractionEstimate
from fedleak.attacks.recommendation.imia import IMIA


class PortedIMIA(Contest):
    """200 users of FNCF. The guesses are random on both sides, so their means agree up to chance."""

    name = "imia"
    paper = "IMIA, as in RAIFLE's code"
    authors = "raifle"
    theirs = "bench.authors.drivers.imia"

    def write(self) -> tuple[Arrays, Arrays]:
        return user_inputs(victims=200)

    def compare(self, truth: Arrays, ours: Arrays, theirs: Arrays) -> list[Comparison]:
        return compared_interactions(truth, ours, theirs, tolerance=0.02)


def prepare(inputs: Arrays) -> Callable[[], Arrays]:
    attack, view = IMIA(), user_view(inputs)

    def run() -> Arrays:
        estimate = attack(view, generator=torch.Generator().manual_seed(int(inputs["seed"])))
        assert isinstance(estimate, InteractionEstimate)
        return {"scores": estimate.scores.numpy()}

    return run
