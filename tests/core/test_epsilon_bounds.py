"""Lower bounds of epsilon: equality with jax_privacy, slow references, coverage, and what each bound cannot exceed."""

import dataclasses
import math

import numpy as np
import pytest
from dp_accounting import get_epsilon_gaussian
from scipy import stats

from fedleak.attacks.declared_privacy.canary_bounds import CanaryBounds
from fedleak.attacks.declared_privacy.canary_estimate import CanaryEstimate
from fedleak.core.bounds_at_delta import bound_at
from fedleak.core.epsilon_bounds import (
    canaries_to_show,
    clopper_pearson_epsilon,
    epsilon_of_mu,
    fewest_canaries,
    fixed_abstention,
    fixed_threshold,
    gaussian_bound,
    one_run_epsilon,
    one_run_fdp_epsilon,
)
from fedleak.core.errors import ViewError
from tests.attacks.declared_privacy.canaries import scored, toy, value
from tests.attacks.runs import run
from tests.places import ROOT

DELTA = 1e-5
MU_OF_8 = 1.6658


@pytest.mark.parametrize("number", range(20))
def test_equals_jax_privacy(number: int) -> None:
    with np.load(ROOT / "tests/golden/canary_scores.npz", allow_pickle=False) as golden:
        scores, coins = golden[f"scores{number}"], golden[f"coins{number}"]
        threshold, delta, alpha = (float(golden[name][number]) for name in ("thresholds", "deltas", "alphas"))
        expected = {name: float(golden[name][number]) for name in ("clopper_pearson", "one_run", "one_run_fdp")}
    above, member = scores >= threshold, coins > 0
    hits, alarms = int((above & member).sum()), int((above & ~member).sum())
    counts = hits, int(member.sum()), alarms, int((~member).sum())
    guesses, canaries = hits + alarms, len(scores)
    found = {
        "clopper_pearson": float(clopper_pearson_epsilon(*counts, delta=delta, alpha=alpha)),
        "one_run": one_run_epsilon(hits, guesses, canaries, delta=delta, alpha=alpha),
        "one_run_fdp": float(one_run_fdp_epsilon([hits], [guesses], canaries, delta=delta, alpha=alpha)[0]),
    }
    assert found == pytest.approx(expected, abs=1e-6)


def test_clopper_pearson_by_hand() -> None:
    interval = stats.binomtest(80, 100).proportion_ci(0.95, method="exact")
    other = stats.binomtest(10, 100).proportion_ci(0.95, method="exact")
    expected = math.log((interval.low - DELTA) / other.high)
    assert clopper_pearson_epsilon(80, 100, 10, 100, delta=DELTA) == pytest.approx(expected)
    # The opposite direction: few of either kind are above, so that the many below decide.
    mirrored = clopper_pearson_epsilon(90, 100, 20, 100, delta=DELTA)
    assert mirrored == pytest.approx(clopper_pearson_epsilon(80, 100, 10, 100, delta=DELTA))


@pytest.mark.parametrize("count", [200, 1000, 5000])
def test_clopper_pearson_saturates(count: int) -> None:
    half = count // 2
    found = float(clopper_pearson_epsilon(half, half, 0, half, delta=0.0))
    assert found == pytest.approx(math.log(count / 7.4), abs=0.03)


def test_few_canaries_show_nothing() -> None:
    least = fewest_canaries(DELTA)
    assert least == 12
    assert clopper_pearson_epsilon(5, 5, 0, 5, delta=DELTA) == 0


@pytest.mark.parametrize(("correct", "guesses"), [(30, 30), (70, 80), (26, 50), (40, 60)])
def test_one_run_against_the_formula_term_by_term(correct: int, guesses: int) -> None:
    canaries, alpha = 100, 0.05

    def p_value(epsilon: float) -> float:
        law = stats.binom(guesses, math.exp(epsilon) / (1 + math.exp(epsilon)))
        tail = law.sf(np.arange(-1, correct))
        terms = [(tail[correct - i] - tail[correct]) / i for i in range(1, correct + 1)]
        return float(tail[correct] + 2 * canaries * DELTA * max(terms))

    found = one_run_epsilon(correct, guesses, canaries, delta=DELTA)
    assert p_value(found + 1e-3) > alpha
    assert found == 0 or p_value(found - 1e-3) <= alpha


def test_fdp_of_many_audits_equals_each_alone() -> None:
    correct, guesses = np.array([40, 18, 90, 0]), np.array([50, 30, 90, 0])
    together = one_run_fdp_epsilon(correct, guesses, 100, delta=DELTA)
    alone = [float(one_run_fdp_epsilon([c], [g], 100, delta=DELTA)[0]) for c, g in zip(correct, guesses, strict=True)]
    assert together.tolist() == pytest.approx(alone)
    assert together[2] > together[0] > 0 == together[3]


def test_gaussian_bound_by_hand() -> None:
    agreement = np.array([[1.0, 2.0, 0.5, 1.5]])
    mu = 2 * (1.25 - stats.norm.ppf(0.95) / 2)
    found = gaussian_bound(agreement, np.ones(4), delta=DELTA)
    assert found.epsilon[0] == pytest.approx(get_epsilon_gaussian(1 / mu, DELTA))


def test_gaussian_bound_of_unequal_sends_is_that_of_the_most() -> None:
    rng = np.random.default_rng(1)
    sends = np.repeat([1.0, 4.0], 4000)
    agreement = 0.8 * np.sqrt(sends) / 2 + rng.standard_normal((1, 8000))
    found = gaussian_bound(agreement, sends, delta=DELTA, draw=rng.standard_normal(1))
    true = get_epsilon_gaussian(1 / 1.6, DELTA)
    assert 0.9 * true < found.epsilon[0] < true
    assert found.valid[0]


def test_the_test_of_gaussianity_has_its_level_and_finds_other_laws() -> None:
    rng = np.random.default_rng(2)
    scores = 0.8 + rng.standard_normal((400, 200))
    honest = gaussian_bound(scores, np.ones(200), delta=DELTA, draw=rng.standard_normal(400))
    assert stats.kstest(honest.p_value, "uniform").pvalue > 1e-3
    assert (honest.valid == (honest.p_value >= 0.01)).all()
    laplace = gaussian_bound(0.8 + rng.laplace(size=(50, 1000)) / 2**0.5, np.ones(1000), delta=DELTA)
    assert float((~laplace.valid).mean()) > 0.95


@pytest.mark.parametrize("epsilon", [1.0, 8.0])
def test_every_bound_holds_in_most_audits(epsilon: float) -> None:
    """Scores of the worst case: two Gaussians, exactly as far apart as epsilon says."""
    audits, count, rng = 250, 200, np.random.default_rng(3)
    mu = 0.2678 if epsilon == 1 else MU_OF_8
    coins = rng.choice([-1, 1], (audits, count))
    scores = coins * mu / 2 + rng.standard_normal((audits, count))
    above, plus = scores > fixed_threshold(mu, count, delta=DELTA), coins > 0
    found = clopper_pearson_epsilon(
        (above & plus).sum(1), plus.sum(1), (above & ~plus).sum(1), (~plus).sum(1), delta=DELTA
    )
    gaussian = gaussian_bound(coins * scores, np.ones(count), delta=DELTA).epsilon
    guessed = np.abs(scores) > fixed_abstention(mu, count, delta=DELTA)
    right = (guessed & (scores * coins > 0)).sum(1)
    fdp = one_run_fdp_epsilon(right, guessed.sum(1), count, delta=DELTA)
    for bound in (found, gaussian, fdp):
        assert stats.binomtest(int((bound > epsilon).sum()), audits, 0.05, alternative="greater").pvalue > 1e-3
    assert float((gaussian > 0.999 * epsilon).mean()) > 0.02  # it is not valid by being zero


def test_more_canaries_show_more() -> None:
    assert canaries_to_show(8, 0.5, delta=DELTA) < canaries_to_show(8, 0.9, delta=DELTA)
    count = canaries_to_show(8, 7.4 / 8, delta=DELTA)
    shown = float(epsilon_of_mu(MU_OF_8 - 2 * 1.6449 / math.sqrt(count), DELTA))
    assert shown == pytest.approx(7.4, abs=0.01)


def test_bounds_at_another_delta_are_those_of_an_attack_with_that_delta() -> None:
    view, truth = toy()
    estimate = run(CanaryBounds(), view, CanaryEstimate)
    own = estimate.score(view, truth)
    other = dataclasses.replace(estimate, delta=1e-2).score(view, truth)  # the same thresholds
    for row in own.details:
        name = str(row["bound"])
        assert bound_at(row, 1e-5, None) == pytest.approx(value(own, name), abs=1e-6)
        assert bound_at(row, 1e-2, None) == pytest.approx(value(other, name), rel=1e-6)


def test_a_gaussian_bound_of_fewer_rounds_is_that_of_one_of_them() -> None:
    rows = {str(row["bound"]): row for row in scored(*toy(rounds=4)).details}
    assert rows["epsilon-gdp"]["rounds"] == 4
    assert bound_at(rows["epsilon-gdp"], 1e-5, 1) < 8.6
    assert bound_at(rows["epsilon-gdp"], 1e-5, 5) == pytest.approx(rows["epsilon-gdp"]["epsilon at least"])
    for name in ("epsilon-cp", "epsilon-one-run"):
        with pytest.raises(ViewError, match="rounds"):
            bound_at(rows[name], 1e-5, 1)


def test_pure_privacy_compares_with_counts_only() -> None:
    rows = {str(row["bound"]): row for row in scored(*toy()).details}
    assert bound_at(rows["epsilon-cp"], 0.0, None) > 0
    with pytest.raises(ViewError, match="Gaussian"):
        bound_at(rows["epsilon-gdp"], 0.0, None)
