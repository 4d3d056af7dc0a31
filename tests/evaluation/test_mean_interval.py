"""The interval of a mean holds for few clients, for equal values and for mixtures of 0 and 1."""

import numpy as np
import pytest
from scipy.stats import beta, hypergeom

from fedleak.core.scoring import clopper_pearson
from fedleak.evaluation.mean_interval import UNBOUNDED, MeanOverClients
from fedleak.evaluation.upper_end import upper_end, upper_end_of_others

NOTHING = np.empty(0)


def mean_of(values: np.ndarray, span: tuple[float, float] = (0.0, 1.0), **more: np.ndarray) -> MeanOverClients:
    fields = {"sizes": np.ones(len(values)), "trainings": NOTHING, "influences": NOTHING, **more}
    return MeanOverClients(float(values.mean()), values, span=span, **fields)


@pytest.mark.parametrize("clients", [1, 5, 12, 40])
def test_of_values_0_and_1_it_is_that_of_clopper_and_pearson(clients: int) -> None:
    for ones in range(clients + 1):
        values = np.r_[np.ones(ones), np.zeros(clients - ones)]
        assert mean_of(values).ends() == pytest.approx(clopper_pearson(ones, clients), abs=1e-5)


def test_of_values_0_and_1_the_far_tail_is_that_of_clopper_and_pearson() -> None:
    """The tail of one attack of a hundred."""
    values = np.r_[np.ones(3), np.zeros(17)]
    exact = clopper_pearson(3, 20, level=1 - 0.05 / 100)
    assert mean_of(values).ends(100, 100) == pytest.approx(exact, abs=1e-5)


def test_equal_values_leave_what_one_more_client_could_change() -> None:
    ends = mean_of(np.full(5, 0.6)).ends()
    left = 1 - 0.025 ** (1 / 5)
    assert ends == pytest.approx((0.6 - left * 0.6, 0.6 + left * 0.4), abs=1e-6)


def test_it_is_the_quantile_of_sums_with_uniform_weights() -> None:
    values = np.random.default_rng(0).beta(8, 2, 12)
    weights = np.random.default_rng(1).exponential(size=(400_000, 13))
    sums = weights @ np.append(values, 1.0) / weights.sum(1)
    assert upper_end(values, 1.0, 0.025) == pytest.approx(np.quantile(sums, 0.975), abs=2e-3)
    assert upper_end(values, 1.0, 0.001) == pytest.approx(np.quantile(sums, 0.999), abs=5e-3)


@pytest.mark.integration
def test_neighbours_of_very_many_values_are_merged_without_moving_the_end() -> None:
    values = np.random.default_rng(0).random(600)
    weights = np.random.default_rng(1).exponential(size=(40_000, 601))
    sums = weights @ np.append(values, 1.0) / weights.sum(1)
    assert upper_end(values, 1.0, 0.025) == pytest.approx(np.quantile(sums, 0.975), abs=1e-3)


LAWS = {
    "one in ten": (lambda draw, n: (draw.random(n) < 0.1).astype(float), 0.1),
    "half or all of an AUC": (lambda draw, n: np.where(draw.random(n) < 0.15, 0.5, 1.0), 0.925),
    "narrow, with one in ten at 1": (
        lambda draw, n: np.where(draw.random(n) < 0.1, 1.0, np.clip(draw.normal(0.5, 0.03, n), 0, 1)),
        0.55,
    ),
}


@pytest.mark.integration
@pytest.mark.parametrize(("law", "mean"), LAWS.values(), ids=LAWS)
@pytest.mark.parametrize("clients", [5, 20])
def test_it_covers_the_mean_of_laws_that_audits_have(law: object, mean: float, clients: int) -> None:
    draw = np.random.default_rng(clients)
    ends = [mean_of(law(draw, clients)).ends() for _ in range(100)]  # type: ignore[operator]
    assert sum(low <= mean + 1e-9 and mean - 1e-9 <= high for low, high in ends) >= 92


def test_no_end_is_outside_of_the_span() -> None:
    correlations = np.array([0.979, 1.0, 0.9, -0.3, 1.0])
    low, high = mean_of(correlations, (-1.0, 1.0)).ends()
    assert -1 <= low < high <= 1
    assert mean_of(np.ones(4)).ends()[1] == 1.0


def test_without_a_span_it_is_a_t_interval_and_one_client_has_none() -> None:
    values = np.array([1.0, 2.0, 4.0])
    low, high = mean_of(values, UNBOUNDED).ends()
    half = 4.302653 * values.std(ddof=1) / 3**0.5  # t of two degrees of freedom
    assert (low, high) == pytest.approx((values.mean() - half, values.mean() + half))
    assert mean_of(values[:1], UNBOUNDED).ends() == (-np.inf, np.inf)
    assert mean_of(values, (0.0, np.inf)).ends()[0] >= 0


def test_groups_count_by_their_sizes() -> None:
    """Two groups of equal sizes weigh as two clients; of others, each weight counts as often as the group is large."""
    alone = mean_of(np.array([0.2, 0.8]))
    grouped = mean_of(np.array([0.2, 0.8]), sizes=np.array([7.0, 7.0]))
    assert grouped.ends() == pytest.approx(alone.ends())
    values, sizes = np.array([0.2, 0.8]), np.array([1.0, 13.0])
    weights = np.random.default_rng(0).exponential(size=(400_000, 3)) * np.append(sizes, sizes.mean())
    sums = weights @ np.append(values, 1.0) / weights.sum(1)
    assert upper_end(values, 1.0, 0.025, sizes=sizes) == pytest.approx(np.quantile(sums, 0.975), abs=2e-3)


def test_the_spread_over_trainings_is_added() -> None:
    values = np.full(20, 0.5)
    one, several = mean_of(values), mean_of(values, trainings=np.array([0.4, 0.5, 0.6]))
    half = 4.302653 * 0.1 / 3**0.5
    assert several.ends()[1] == pytest.approx(0.5 + np.hypot(one.ends()[1] - 0.5, half))


def test_of_a_recording_that_was_attacked_whole_the_mean_is_a_fact() -> None:
    mean = mean_of(np.array([0.0, 1.0, 0.3, 0.2, 0.9]))
    assert mean.ends_of_recording(0.0) == (mean.mean, mean.mean)
    inferred, drawn = mean.ends(), mean.ends_of_recording(0.5)
    assert inferred[0] < drawn[0] < mean.mean < drawn[1] < inferred[1]
    nearly = mean.ends_of_recording(0.01)
    assert nearly[1] <= 0.99 * mean.mean + 0.01  # clients that were not drawn have at most 1


@pytest.mark.parametrize(("recorded", "drawn"), [(6, 3), (30, 28), (40, 20), (60, 59)])
def test_the_mean_of_all_clients_of_a_recording_is_covered_where_some_are_drawn(recorded: int, drawn: int) -> None:
    """An end misses the mean as seldom as promised, whatever number of clients is exposed."""
    ones = np.arange(drawn + 1)
    ends = [mean_of(np.r_[np.ones(one), np.zeros(drawn - one)]).ends_of_recording(1 - drawn / recorded) for one in ones]
    low, high = np.array(ends).T
    for exposed in range(recorded + 1):
        probability = hypergeom.pmf(ones, recorded, exposed, drawn)
        mean = exposed / recorded
        assert probability[mean > high + 1e-9].sum() <= 0.03
        assert probability[mean < low - 1e-9].sum() <= 0.03


def test_of_clients_that_were_not_drawn_groups_count_by_their_sizes() -> None:
    """With very many of them, the end is that of clients like these."""
    values, sizes = np.array([0.2, 0.8, 0.3]), np.array([1.0, 13.0, 4.0])
    infinitely_many = upper_end(values, 1.0, 0.025, sizes=sizes)
    assert upper_end_of_others(values, 1.0, 0.025, 100_000, sizes=sizes) == pytest.approx(infinitely_many, abs=0.01)
    assert upper_end_of_others(values, 1.0, 0.025, 1, sizes=sizes) == 1.0


def test_without_a_finite_value_there_is_no_interval() -> None:
    nothing = MeanOverClients(np.nan, NOTHING, NOTHING, (0.0, 1.0), NOTHING, NOTHING)
    assert np.isnan(nothing.ends()).all()
    infinite = MeanOverClients(np.inf, np.array([1.0, np.inf]), np.ones(2), (0.0, np.inf), NOTHING, NOTHING)
    assert infinite.ends()[1] == np.inf


@pytest.mark.parametrize("clients", [1000, 20_000, 100_000])
@pytest.mark.parametrize("tests", [1, 200])
def test_of_very_many_clients_it_is_that_of_clopper_and_pearson(clients: int, tests: int) -> None:
    for ones in (0, 1, clients // 2, clients - 1):
        values = np.r_[np.ones(ones), np.zeros(clients - ones)]
        end = beta.isf(0.025 / tests, ones + 1, clients - ones)
        assert upper_end(values, 1.0, 0.025 / tests) == pytest.approx(end, rel=2e-3)
