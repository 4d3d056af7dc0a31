"""RAIFLE's gradient matching for ranking, with manipulated features: L-BFGS from the same starting points."""

from collections.abc import Callable
from typing import ClassVar

import numpy as np
import torch

from bench.authors.contest import Comparison, Contest
from bench.authors.host import Arrays, part
from bench.authors.users import compared_interactions
from fedleak.attacks.interactions.estimates import InteractionEstimate
from fedleak.attacks.ranking.list_matching import ListMatching
from fedleak.client.fpdgd import FPDGDAlgorithm
from fedleak.core.view import RoundView
from fedleak.datamodules.ranking.synthetic_ranking import SyntheticRanking
from fedleak.modules.learners.fpdgd import FPDGD
from fedleak.server.noise_injection import NoiseInjection


class _Ranking(Contest):
    """Users with 16 queries each, MQ2007's shape; all features are replaced by noise of deviation 0.1."""

    paper = "RAIFLE, section VI.B"
    authors = "raifle"
    theirs = "bench.authors.drivers.raifle_ranking"
    repeats = 3
    hidden: ClassVar[int]
    victims: ClassVar[int]
    iterations: ClassVar[int]

    def write(self) -> tuple[Arrays, Arrays]:
        data = SyntheticRanking(
            shape="letor", queries=16 * self.victims, fewest_documents=10, most_documents=60, queries_per_client=16
        )
        module = FPDGD(
            num_features=data.num_features,
            num_grades=data.num_grades,
            grade_law=data.grade_law,
            hidden=self.hidden,
            variant="as-published-code",
            manipulation=NoiseInjection(scale=0.1),
            ranker_per_client=True,
        )
        cohort = module.interact(data.build_cohort(0, torch.arange(self.victims)), module.public_parameters())
        update, _ = module.local_updates(cohort, module.public_parameters(), torch.ones(self.victims).bool())
        lists = module.served(cohort)
        rankers = module.client_models(cohort)
        inputs = {
            **{f"model/{name}": value.detach().numpy() for name, value in rankers.items()},
            **{f"deltas/{name}": value.detach().numpy() for name, value in update.deltas.items()},
            **{name: value.numpy() for name, value in lists.items()},
            "victims": np.array(self.victims),
            "iterations": np.array(self.iterations),
            "seed": np.array(7),
        }
        labels = module.truth(cohort)["labels"]
        return inputs, {"labels": labels.numpy(), "served": inputs["served"]}

    def compare(self, truth: Arrays, ours: Arrays, theirs: Arrays) -> list[Comparison]:
        return compared_interactions(truth, ours, theirs, tolerance=0.01)


class LinearRanking(_Ranking):
    """Linear rankers, all of the paper's iterations."""

    name = "raifle-ranking-linear"
    hidden, victims, iterations = 0, 8, 1000


class HiddenRanking(_Ranking):
    """Rankers with 16 hidden units, 50 of the paper's 1,000 iterations."""

    name = "raifle-ranking-hidden"
    hidden, victims, iterations = 16, 4, 50


def prepare(inputs: Arrays) -> Callable[[], Arrays]:
    """The starting points are the first random numbers of the seed."""
    attack = ListMatching(variant="as-published-code", max_iter=int(inputs["iterations"]))
    victims = int(inputs["victims"])
    model = {name: torch.from_numpy(value) for name, value in part(inputs, "model").items()}
    view = RoundView(
        round=0,
        pseudonyms=torch.arange(victims),
        example_counts=torch.full((victims,), 16),
        deltas={name: torch.from_numpy(value) for name, value in part(inputs, "deltas").items()},
        model={name: value[0] for name, value in model.items()},
        client_models=model,
        served=torch.from_numpy(inputs["served"]),
        lists=torch.from_numpy(inputs["lists"]),
        features=torch.from_numpy(inputs["features"]),
        algorithm=FPDGDAlgorithm(
            click_model="informational", grade_law=(0.8, 0.13, 0.07), learning_rate=0.1, variant="as-published-code"
        ),
    )

    def run() -> Arrays:
        estimate = attack(view, generator=torch.Generator().manual_seed(int(inputs["seed"])))
        assert isinstance(estimate, InteractionEstimate)
        return {"scores": estimate.scores.numpy()}

    return run
