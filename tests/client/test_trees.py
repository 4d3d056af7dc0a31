"""The clients of federated trees, as recordings name them."""

import pytest

from fedleak import InputError
from fedleak.client.trees import TreesAlgorithm
from fedleak.recordings.named_algorithm import learner_from, network_of

ALGORITHM = TreesAlgorithm(
    objective="binary:logistic",
    eta=0.3,
    depth=3,
    reg_lambda=1.0,
    min_child_weight=1.0,
    subsample=1.0,
    trees=2,
    aggregation="bagging",
    features=5,
    seed=1,
)


def test_a_recording_gives_the_same_clients_back() -> None:
    assert learner_from({"name": "trees", "arguments": ALGORITHM.arguments()}) == ALGORITHM


@pytest.mark.parametrize(
    ("field", "value"),
    [("objective", "rank:ndcg"), ("eta", 0.0), ("depth", 0), ("subsample", 1.5), ("aggregation", "vertical")],
)
def test_other_values_are_refused(field: str, value: object) -> None:
    with pytest.raises(InputError, match=field):
        learner_from({"name": "trees", "arguments": {**ALGORITHM.arguments(), field: value}})


def test_the_forest_has_the_room_that_was_recorded() -> None:
    shapes = {"trees": (40, 15, 8), "base_score": (1,)}
    assert network_of(ALGORITHM, shapes) == shapes
    assert ALGORITHM.largest_tree == 15


@pytest.mark.parametrize("shapes", [{"base_score": (1,)}, {"trees": (3,), "base_score": (1,)}])
def test_another_model_is_refused(shapes: dict[str, tuple[int, ...]]) -> None:
    with pytest.raises(InputError, match=r"Trees|trees"):
        network_of(ALGORITHM, shapes)
