"""What an attack comes to on one view, and on several."""

import itertools
import time

import numpy as np
import pytest
import torch

from fedleak.attacks.interactions.estimates import InteractionEstimate
from fedleak.attacks.recommendation.item_deltas import Direction
from fedleak.core.estimates import ROC_GRID, Scores
from fedleak.core.view import RoundView
from fedleak.evaluation.runner import AttackError, attack_view, joined
from tests.toys import leaky_view


def test_curves_are_summed_over_victims_and_views() -> None:
    view, labels = leaky_view(victims=4)
    labels[0] = 0  # a client without a curve
    one = attack_view(Direction(), view, {"labels": labels}, seed=0, setting={"data": "d"})
    sums, number = one.roc["direction"]
    assert number == 3
    assert (sums.shape, float(sums[-1])) == (ROC_GRID.shape, 3)
    whole, number = joined([one, one]).roc["direction"]
    assert number == 6
    assert np.array_equal(whole, 2 * sums)


@pytest.mark.parametrize(
    ("value", "influenced", "refused"), [(1.2, False, True), (1.2, True, False), (1.0, False, False)]
)
def test_a_value_beyond_the_span_of_its_metric_is_a_defect(
    monkeypatch: pytest.MonkeyPatch, value: float, influenced: bool, refused: bool
) -> None:
    """Intervals rely on the span; a mean of influences lies within it where single values do not."""
    view, labels = leaky_view(victims=4)
    values = torch.full((4,), value, dtype=torch.float64)
    scores = Scores({"auc": values}, influences={"auc": values} if influenced else {})
    monkeypatch.setattr(InteractionEstimate, "score", lambda *_: scores)

    def attacked() -> None:
        attack_view(Direction(), view, {"labels": labels}, seed=0, setting={"data": "d"})

    if refused:
        with pytest.raises(AttackError, match=r"values of auc of attack direction within its span, 0 to 1; found 1\.2"):
            attacked()
    else:
        attacked()


class Simulating(Direction):
    """An attack that needs work of a thousand seconds, which others on the view need too."""

    name = "simulating"

    def run(self, view: RoundView, *, generator: torch.Generator) -> InteractionEstimate:
        view.shared.value("simulated", lambda: [next(CLOCK) for _ in range(1000)])
        return super().run(view, generator=generator)


CLOCK = itertools.count()


def test_the_time_of_an_attack_includes_what_another_computed_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every look at the clock takes a second."""
    view, labels = leaky_view(victims=4)
    monkeypatch.setattr(time, "perf_counter", lambda: float(next(CLOCK)))
    seconds = []
    for attack in (Simulating(), Direction(), Simulating()):
        evaluation = attack_view(attack, view, {"labels": labels}, seed=0, setting={"data": "d"})
        seconds.append(float(evaluation.scores["seconds"].iloc[0]) * view.victims)
    assert seconds[0] > 1000
    assert seconds[1] < 1000
    assert seconds[2] > 1000
