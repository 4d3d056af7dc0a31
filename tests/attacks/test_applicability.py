"""A question does not apply only where the recording shows it; what the recording does not say excludes nothing."""

from typing import Any

import pytest
import torch

from fedleak.attacks.composition.estimates import CompositionEstimate
from fedleak.attacks.composition.one_output import PositiveShare, TargetMean
from fedleak.attacks.identifiability.pac import VectorEstimate
from fedleak.attacks.interactions.estimates import InteractionEstimate
from fedleak.attacks.membership.retrieval import RetrievalEstimate
from fedleak.attacks.reconstruction.span_estimate import SpanEstimate
from fedleak.attacks.record_membership.estimates import RecordMembershipEstimate
from fedleak.attacks.sums_over_rounds.estimates import SharesOverRounds
from fedleak.attacks.words.estimates import WordSetEstimate
from fedleak.client.engine.local_hyperparameters import LocalTraining
from fedleak.client.fncf import FNCFAlgorithm
from fedleak.client.trees import TreesAlgorithm
from fedleak.core.estimates import Estimate
from fedleak.core.release import Release
from fedleak.core.view import RoundView

CLASSES = {"class_counts", "clients"}


def view(outputs: int = 1, **changed: Any) -> RoundView:
    shapes = {"fc1.weight": (16, 30), "fc1.bias": (16,), "fc2.weight": (outputs, 16), "fc2.bias": (outputs,)}
    common: dict[str, Any] = {"round": 0, "pseudonyms": torch.arange(2), "example_counts": torch.ones(2)}
    common["deltas"] = {name: torch.zeros(2, *shape) for name, shape in shapes.items()}
    common["model"] = {name: torch.zeros(shape) for name, shape in shapes.items()}
    return RoundView(**common | changed)


RECOMMENDER = FNCFAlgorithm(user_dim=4, local=LocalTraining())


@pytest.mark.parametrize(
    ("estimate", "seen", "truth", "applies"),
    [
        (InteractionEstimate, view(), CLASSES, False),  # a classifier of records, by its ground truth alone
        (InteractionEstimate, view(), {"clients"}, True),  # nothing says what the clients train
        (InteractionEstimate, view(served=torch.zeros(2, 3)), CLASSES, True),
        (InteractionEstimate, view(algorithm=RECOMMENDER), set(), True),
        (RetrievalEstimate, view(), CLASSES, False),
        (VectorEstimate, view(), CLASSES, False),
        (CompositionEstimate, view(1), CLASSES, False),
        (CompositionEstimate, view(10), CLASSES, True),
        (CompositionEstimate, view(10, algorithm=RECOMMENDER), {"labels"}, False),
        (PositiveShare, view(1), CLASSES, True),
        (PositiveShare, view(10), CLASSES, False),
        (PositiveShare, view(1), {"target_mean"}, False),
        (TargetMean, view(1), CLASSES, False),
        (TargetMean, view(1), {"target_mean"}, True),
        (TargetMean, view(1), set(), True),
        (RecordMembershipEstimate, view(algorithm=RECOMMENDER), {"labels"}, False),
        (RecordMembershipEstimate, view(), CLASSES, True),
        (WordSetEstimate, view(), CLASSES, True),  # a network that reads a bag of words has such layers too
        (WordSetEstimate, view(auxiliary={"images": torch.zeros(2, 1, 8, 8)}), CLASSES, False),
        (WordSetEstimate, view(auxiliary={"images": torch.zeros(2, 1, 8, 8)}), {"words"}, True),
        (SpanEstimate, view(auxiliary={"columns": torch.zeros(2, 3)}), CLASSES, False),
        (SharesOverRounds, view(), CLASSES, False),
        (SharesOverRounds, view(participants=torch.zeros(2, 4)), CLASSES, True),
        (SharesOverRounds, view(releases=(Release(participants=10),)), CLASSES, True),
    ],
)
def test_what_the_recording_shows_decides(
    estimate: type[Estimate], seen: RoundView, truth: set[str], applies: bool
) -> None:
    assert (estimate.inapplicable(seen, truth) is None) == applies


def test_rows_of_a_forest_are_no_images() -> None:
    forest = TreesAlgorithm(
        objective="binary:logistic",
        eta=0.1,
        depth=3,
        reg_lambda=1.0,
        min_child_weight=1.0,
        subsample=1.0,
        trees=1,
        aggregation="bagging",
        features=8,
        seed=0,
    )
    seen = view(algorithm=forest, auxiliary={"images": torch.zeros(2, 1, 1, 8)})
    assert SpanEstimate.inapplicable(seen, CLASSES) == "the clients train on rows of a table"
