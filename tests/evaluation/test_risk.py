import math

import numpy as np
import pandas as pd
import pytest
import torch

from fedleak.core.estimates import Candidates
from fedleak.evaluation.range import Range
from fedleak.evaluation.risk import operating_point, worst_clients, worst_in_words, worst_tenth
from fedleak.evaluation.scores import score_table


def candidates(scores: list[float], labels: list[int], owners: list[int] | None = None) -> Candidates:
    own = list(range(len(scores))) if owners is None else owners
    return Candidates("is it?", torch.tensor(scores), torch.tensor(labels, dtype=torch.bool), torch.tensor(own))


def slow_point(scores: list[float], labels: list[int], allowed: float) -> tuple[float, float]:
    """Rates of the best threshold, by trying each."""
    found = [(0.0, 0.0)]
    for threshold in scores:
        named = [score >= threshold for score in scores]
        rates = [float(np.mean([n for n, own in zip(named, labels, strict=True) if own == kind])) for kind in (1, 0)]
        if rates[1] <= allowed:
            found.append((rates[0], -rates[1]))
    best, false = max(found)
    return best, -false


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("allowed", [0.01, 0.1, 0.3])
def test_the_rates_are_those_of_the_best_threshold(seed: int, allowed: float) -> None:
    generator = np.random.default_rng(seed)
    labels = generator.integers(0, 2, 60).tolist()
    scores = (generator.normal(size=60).round(1) + np.array(labels)).tolist()
    point = operating_point(candidates(scores, labels), allowed)
    assert point is not None
    assert (point.tpr.value, point.fpr.value) == pytest.approx(slow_point(scores, labels, allowed))
    assert point.fpr.value <= allowed
    assert point.tpr.low <= point.tpr.value <= point.tpr.high


def test_tied_scores_are_accepted_together() -> None:
    point = operating_point(candidates([1, 1, 1, 0], [1, 1, 0, 0]), 0.4)
    assert point is not None
    assert (point.tpr.value, point.fpr.value, point.threshold) == (0, 0, math.inf)


def test_without_a_false_candidate_there_are_no_rates() -> None:
    assert operating_point(candidates([1, 2], [1, 1]), 0.1) is None
    assert operating_point(candidates([1, 2], [0, 0]), 0.1) is None


def test_the_interval_is_over_clients_not_candidates() -> None:
    labels = [1, 0] * 500
    perfect = operating_point(candidates([float(one) for one in labels], labels, [0] * 500 + [1] * 500), 0.01)
    assert perfect is not None
    assert (perfect.tpr.value, perfect.fpr.value, perfect.clients) == (1, 0, 2)
    assert perfect.tpr.low == pytest.approx(0.025**0.5)  # Clopper-Pearson, two of two


def test_scores_that_are_unrelated_to_the_labels_name_both_kinds_alike() -> None:
    generator = np.random.default_rng(0)
    labels = generator.integers(0, 2, 4000).tolist()
    point = operating_point(candidates(generator.normal(size=4000).tolist(), labels), 0.1)
    assert point is not None
    assert point.tpr.low < point.fpr.value + 0.02
    assert point.tpr.value == pytest.approx(0.1, abs=0.03)


def table(values: list[float], metric: str) -> pd.DataFrame:
    return score_table("a", {metric: values}, setting={"data": "d"}, seed=0, victims=range(len(values)))


@pytest.mark.parametrize(("metric", "mean"), [("auc", 1 - 0.255 / 7), ("l1", 0.255 / 7)])
def test_the_worst_tenth_is_that_about_which_most_is_inferred(metric: str, mean: float) -> None:
    rows = table([i / 60 for i in range(61)] + [0.995, 0.005], metric)
    found = worst_tenth(rows)
    assert found is not None
    first = {"auc": [60, 61, 59, 58, 57, 56, 55], "l1": [0, 62, 1, 2, 3, 4, 5]}
    assert worst_clients(rows).index.tolist() == first[metric]
    assert found.value == pytest.approx(mean)
    assert found.low <= found.value <= found.high


def test_of_few_clients_the_worst_are_five() -> None:
    """A mean over fewer is about as good as their own values."""
    rows = table([i / 10 for i in range(10)], "auc")
    assert worst_clients(rows).tolist() == [0.9, 0.8, 0.7, 0.6, 0.5]
    assert worst_in_words(worst_clients(rows), 10) == "5 most exposed clients"


@pytest.mark.parametrize("clients", range(6, 10))
def test_the_worst_are_all_clients_where_the_mean_over_all_would_give_the_value_of_the_others(clients: int) -> None:
    values = [i / 10 for i in range(clients)]
    assert sorted(worst_clients(table(values, "auc"))) == values


def test_one_client_is_its_own_worst_tenth() -> None:
    assert worst_tenth(table([0.7], "auc")) == Range(0.7, 0.7, 0.7)
    assert worst_clients(table([0.7], "auc")).tolist() == [0.7]
    assert worst_tenth(table([math.nan], "auc")) is None
