import math
from collections.abc import Callable

import pytest
import torch
from sklearn.metrics import average_precision_score, f1_score, roc_auc_score

from fedleak.core.scoring import (
    AcceptanceRates,
    auc_per_victim,
    average_precision,
    composition_errors,
    exact_roc,
    f1_per_victim,
    null_class_errors,
    r_precision,
    random_average_precision,
    rates_at,
    roc_per_victim,
    top_share,
    wins_over_negatives,
)
from fedleak.core.seeding import generator_for


def sample() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = generator_for(0, "metrics")
    scores = torch.randint(0, 6, (9, 30), generator=generator).float()
    labels = (torch.rand(9, 30, generator=generator) < 0.3).float()
    mask = torch.arange(30) < torch.randint(12, 31, (9, 1), generator=generator)
    return scores, labels, mask


def test_auc_with_ties_and_f1_are_scikit_learns() -> None:
    scores, labels, mask = sample()
    aucs, f1s = auc_per_victim(scores, labels, mask), f1_per_victim(scores > 3, labels, mask)
    for victim, kept in enumerate(mask):
        truth, own = labels[victim, kept], scores[victim, kept]
        assert aucs[victim].item() == pytest.approx(roc_auc_score(truth, own))
        assert f1s[victim].item() == pytest.approx(f1_score(truth, own > 3))


def test_auc_of_one_class_is_no_number() -> None:
    assert auc_per_victim(torch.rand(1, 4), torch.ones(1, 4), torch.ones(1, 4, dtype=torch.bool)).isnan().all()


def drawn_sample() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = generator_for(0, "roc")
    labels = (torch.rand(4, 2000, generator=generator) < 0.3).float()
    return torch.randn(4, 2000, generator=generator) + labels, labels, torch.ones(4, 2000, dtype=torch.bool)


@pytest.mark.parametrize("made", [drawn_sample, sample], ids=["continuous", "tied"])
def test_roc_has_the_area_of_the_auc(made: Callable[[], tuple[torch.Tensor, torch.Tensor, torch.Tensor]]) -> None:
    grid = torch.linspace(0, 1, 2001)
    area = torch.trapezoid(roc_per_victim(*made(), grid), grid.double())
    torch.testing.assert_close(area, auc_per_victim(*made()), atol=0.002, rtol=0)


def test_roc_ends_where_everything_is_accepted() -> None:
    scores = torch.tensor([[3.0, 2.0, 1.0, 0.0, 9.0], [1.0, 1.0, 1.0, 0.0, 0.0]])
    labels = torch.tensor([[1.0, 0.0, 0.0, 1.0, 0.0], [1.0, 0.0, 0.0, 1.0, 1.0]])  # positives below every negative
    mask = torch.tensor([[True, True, True, True, False], [True] * 5])
    rates = roc_per_victim(scores, labels, mask, torch.tensor([0.0, 0.5, 1.0]))
    assert rates[:, -1].tolist() == [1.0, 1.0]
    assert rates[0].tolist() == [0.5, 0.5, 1.0]


def test_wins_over_negatives_average_to_the_auc() -> None:
    scores = torch.tensor([0.1, 0.5, 0.5, 0.9, 0.2])
    labels = torch.tensor([False, True, False, True, False])
    whole = auc_per_victim(scores[None], labels[None].float(), torch.ones(1, 5, dtype=torch.bool))
    assert wins_over_negatives(scores, labels).tolist() == pytest.approx([2.5 / 3, 1.0])
    assert float(wins_over_negatives(scores, labels).mean()) == pytest.approx(float(whole))


def test_distances_and_null_errors_by_hand() -> None:
    errors = composition_errors(torch.tensor([[0.5, 0.5, 0.0]]), torch.tensor([[0.2, 0.5, 0.3]]))
    assert {name: round(float(value[0]), 6) for name, value in errors.items()} == {
        "l1": 0.6,
        "l2": round((2 * 0.09) ** 0.5, 6),
        "linf": 0.3,
    }
    present = torch.tensor([[True, True, True, False, False], [True] * 5])
    held = torch.tensor([[True, False, True, True, False], [True] * 5])
    wrong = null_class_errors(present, held)
    assert wrong["null_false_positive"][0] == 1 / 2
    assert wrong["null_false_positive"][1].isnan()
    torch.testing.assert_close(wrong["null_false_negative"], torch.tensor([1 / 3, 0], dtype=torch.float64))


def test_the_exact_curve_has_every_threshold_and_ends_where_all_is_accepted() -> None:
    scores, labels = torch.tensor([3.0, 2.0, 2.0, 1.0]), torch.tensor([True, True, False, False])
    fpr, tpr, thresholds = exact_roc(scores, labels)
    assert fpr.tolist() == [0, 0, 0.5, 1]
    assert tpr.tolist() == [0, 0.5, 1, 1]
    assert thresholds.tolist() == [math.inf, 3, 2, 1]
    assert rates_at(scores, labels, 0.49) == AcceptanceRates(0.5, 0.0, 3.0)
    assert rates_at(scores, labels, 1.0) == AcceptanceRates(1.0, 0.5, 2.0)
    assert rates_at(-scores, labels, 0.0) == AcceptanceRates(0.0, 0.0, math.inf)


def test_a_rate_below_the_grid_of_the_mean_curves_is_exact() -> None:
    scores = torch.arange(20_000.0)
    labels = torch.zeros(20_000, dtype=torch.bool)
    labels[[19_999, 19_991, 100]] = True
    found = rates_at(scores, labels, 1e-3)
    assert (found.tpr, found.fpr) == pytest.approx((2 / 3, 7 / 19_997))


def test_average_precision_of_no_columns_is_empty() -> None:
    assert average_precision(torch.zeros(3, 0), torch.zeros(3, 0, dtype=torch.bool)).shape == (0,)


@pytest.mark.parametrize("levels", [2, 7, 10**6])
def test_average_precision_is_scikit_learns_with_and_without_ties(levels: int) -> None:
    generator = generator_for(0, "ap", levels)
    scores = torch.randint(levels, (80, 5), generator=generator).double()
    positive = torch.rand(80, 5, generator=generator) < 0.2
    positive[:, 4] = False
    ours = average_precision(scores, positive)
    for column in range(4):
        expected = average_precision_score(positive[:, column].numpy(), scores[:, column].numpy())
        assert float(ours[column]) == pytest.approx(expected)
    assert bool(ours[4].isnan())


def test_r_precision_counts_ties_by_their_chance() -> None:
    scores = torch.tensor([[3.0, 2, 1, 0], [1, 1, 1, 1], [0, 0, 0, 9], [1, 2, 3, 4]])
    positive = torch.tensor([[1, 0, 1, 0], [1, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 0]]) > 0
    mask = torch.tensor([1, 1, 1, 0]).bool().expand(4, 4)
    found = r_precision(scores, positive, mask)
    assert found[:3].tolist() == pytest.approx([1 / 2, 2 / 3, 1 / 3])
    assert bool(found[3].isnan())


def test_random_average_precision_is_the_mean_over_random_orders() -> None:
    positive = torch.arange(30)[:, None] < torch.tensor([1, 3, 10])
    generator = generator_for(0, "orders")
    draws = average_precision(torch.rand(30, 9000, generator=generator), positive.repeat(1, 3000)).reshape(3000, 3)
    expected = random_average_precision(positive.sum(0), 30)
    torch.testing.assert_close(draws.mean(0), expected, rtol=0.03, atol=0)
    assert bool((expected > positive.sum(0) / 30).all())


def test_the_first_places_and_ties_about_them() -> None:
    scores = torch.tensor([[0.1, 0.9, 0.5], [0.2, 0.2, 0.2], [0.0, 1.0, 1.0]])
    true = torch.tensor([2, 0, 2])
    assert top_share(scores, true, 1).tolist() == pytest.approx([0, 1 / 3, 1 / 2])
    assert top_share(scores, true, 2).tolist() == pytest.approx([1, 2 / 3, 1])
