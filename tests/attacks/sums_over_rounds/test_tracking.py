"""The filter of sums: least squares at full rank, Gaussian laws by hand, intervals, bounds and whole numbers."""

import math

import pytest
import torch
from scipy.optimize import lsq_linear
from scipy.stats import multivariate_normal
from torch import Tensor

from fedleak.attacks.sums_over_rounds.rounds_to_reveal import bounded
from fedleak.attacks.sums_over_rounds.tracking import (
    _WIDE,
    ClientLaw,
    Posterior,
    SumsOf,
    _State,
    deviations_after,
    laws,
    posterior,
    rank,
)
from fedleak.attacks.sums_over_rounds.whole_numbers import (
    at_least_zero,
    is_refuted,
    whole_numbers_of,
    within_common_error,
)
from fedleak.core.errors import ViewError
from fedleak.core.seeding import generator_for

CLIENTS, TOGETHER = 10, 4


def random_groups(rounds: int, *, groups: int = 1, seed: int = 0) -> list[Tensor]:
    """By round, weights ``(G, C)`` of sums over disjoint random groups."""
    generator, found = generator_for(seed, "groups"), []
    for _ in range(rounds):
        order = torch.randperm(CLIENTS, generator=generator)[: groups * TOGETHER].reshape(groups, -1)
        found.append(torch.zeros(groups, CLIENTS, dtype=torch.float64).scatter_(1, order, 1 / TOGETHER))
    return found


def shares(kinds: int = 5, seed: int = 0, each: int = 20) -> Tensor:
    """``(C, K)`` shares of kinds, each a whole number of a client's examples."""
    drawn = torch.randint(kinds, (CLIENTS, each), generator=generator_for(seed, "shares"))
    return torch.nn.functional.one_hot(drawn, kinds).double().mean(1)


def exact(weights: list[Tensor], truth: Tensor) -> SumsOf:
    return SumsOf(weights, [own @ truth for own in weights])


@pytest.mark.parametrize("law", [ClientLaw(spread=0.2, error=1e-12), None])
def test_mean_of_exact_sums_at_full_rank_is_that_of_least_squares(law: ClientLaw | None) -> None:
    sums = exact(random_groups(16), shares())
    assert rank(sums.weights) == CLIENTS
    solved = torch.linalg.lstsq(torch.cat(list(sums.weights)), torch.cat(list(sums.observed))).solution
    found, chosen = posterior(sums, law)
    torch.testing.assert_close(found.mean, solved, atol=1e-5, rtol=0)
    torch.testing.assert_close(found.mean, shares(), atol=1e-5, rtol=0)
    assert float(found.deviation.max()) < 1e-3
    assert chosen.drift == 0


def test_posterior_without_drift_is_the_gaussian_one_of_all_sums_together() -> None:
    law, noise = ClientLaw(spread=0.3, error=0.01), [0.002, 0.0, 0.004]
    weights = random_groups(3, groups=2)
    observed = [torch.rand(2, 3, generator=generator_for(n, "observed")).double() for n in range(3)]
    found, _ = posterior(SumsOf(weights, observed, noise), law)
    design, values = torch.cat(weights), torch.cat(observed)
    mean = values.mean(0)
    scale = mean * (1 - mean)
    prior = law.spread * torch.eye(CLIENTS).double() + _WIDE
    error = torch.diag((law.error + torch.tensor(noise, dtype=torch.float64) / scale.mean()).repeat_interleave(2))
    gain = prior @ design.T @ torch.linalg.inv(design @ prior @ design.T + error)
    torch.testing.assert_close(found.mean, mean + gain @ (values - mean))
    torch.testing.assert_close(found.covariance, prior - gain @ design @ prior)
    torch.testing.assert_close(found.deviation, (found.covariance.diagonal()[:, None] * scale).sqrt())


def test_likelihood_of_the_rounds_is_that_of_all_sums_together() -> None:
    spread, error = torch.tensor([0.3], dtype=torch.float64), torch.tensor([0.02], dtype=torch.float64)
    weights = random_groups(4)
    observed = [torch.randn(1, 1, generator=generator_for(n, "observed")).double() for n in range(4)]
    state, total = _State.start(CLIENTS, spread, 1), 0.0
    for own, value in zip(weights, observed, strict=True):
        state, likelihood = state.updated(own, error, value)
        total += float(likelihood)
    design = torch.cat(weights)
    covariance = design @ (0.3 * torch.eye(CLIENTS).double() + _WIDE) @ design.T + 0.02 * torch.eye(4).double()
    law = multivariate_normal(cov=covariance.numpy())
    without_constant = law.logpdf(torch.cat(observed).flatten().numpy()) + 4 / 2 * math.log(2 * math.pi)
    assert total == pytest.approx(without_constant)


@pytest.mark.parametrize("drift", [0.0, 0.2])
def test_intervals_cover_at_their_level(drift: float) -> None:
    """The clients of a kind depend on one another, so the kinds are the draws of the binomial tolerance."""
    kinds, generator = 400, generator_for(1, "walk")
    law, weights = ClientLaw(spread=0.1, error=0.01, drift=drift), random_groups(6, groups=2)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator).double()

    scale, observed = 0.25, []
    own = (law.spread * scale) ** 0.5 * normal(CLIENTS, kinds)
    for part in weights:
        kept = 1 - drift
        own = kept * own + ((1 - kept**2) * law.spread * scale) ** 0.5 * normal(CLIENTS, kinds)
        observed.append(part @ (0.5 + own) + (law.error * scale) ** 0.5 * normal(len(part), kinds))
    found, _ = posterior(SumsOf(weights, observed), law)
    inside = ((found.mean - 0.5 - own).abs() < 1.96 * found.deviation).double()
    assert float(inside.mean()) == pytest.approx(0.95, abs=3 * (0.95 * 0.05 / kinds) ** 0.5)


def test_declared_noise_is_the_error_and_equal_for_all_kinds() -> None:
    assert {law.error for law in laws(declared=True)} == {0.0}
    assert len({law.error for law in laws(declared=False)}) > 1
    observed = [part @ shares() for part in random_groups(8)]
    sums = SumsOf(random_groups(8), observed, [0.01] * 8, declared=True)
    found, law = posterior(sums)
    assert law.error == 0
    assert len(set(found.scale.tolist())) == 1


def test_deviations_need_no_sum_and_are_those_of_the_posterior() -> None:
    law, weights = ClientLaw(spread=0.2, error=1e-6, drift=0.05), random_groups(7)
    sums = exact(weights, shares())
    for rounds in (1, 4, 7):
        expected = posterior(sums.first(rounds), law)[0].covariance.diagonal().sqrt()
        torch.testing.assert_close(deviations_after(weights, law)[rounds - 1], expected)


def test_fixed_groups_reveal_no_client_however_many_rounds() -> None:
    groups = torch.arange(CLIENTS).reshape(2, -1)
    one = torch.zeros(2, CLIENTS, dtype=torch.float64).scatter_(1, groups, 2 / CLIENTS)
    weights = [one[number % 2][None] for number in range(12)]
    assert rank(weights) == 2
    deviations = deviations_after(weights, ClientLaw(spread=0.2, error=1e-9))
    torch.testing.assert_close(deviations[1], deviations[-1], atol=1e-6, rtol=0)
    random = deviations_after(random_groups(16), ClientLaw(spread=0.2, error=1e-9))
    assert float(random[-1].max()) < 0.01 < float(deviations[-1].min())


def test_rank_of_no_sum_is_refused() -> None:
    with pytest.raises(ViewError, match="none"):
        rank([])


def of_normal_law(seed: int) -> tuple[Posterior, Tensor]:
    """A law with means on both sides of zero, and the inverse root of its covariance."""
    generator = generator_for(seed, "law")
    root = torch.randn(4, 6, generator=generator).double()
    covariance = root @ root.T / 6 + 0.1 * torch.eye(4).double()
    mean = torch.randn(4, 3, generator=generator).double() / 2
    inverse = torch.linalg.inv(torch.linalg.cholesky(covariance))
    return Posterior(mean, covariance, torch.ones(3).double()), inverse


@pytest.mark.parametrize("seed", range(3))
def test_most_likely_statistics_that_are_not_negative_are_those_of_a_bounded_solver(seed: int) -> None:
    found, root = of_normal_law(seed)
    assert bool((found.mean < 0).any())
    solved = at_least_zero(found)
    for kind in range(3):
        expected = lsq_linear(root.numpy(), (root @ found.mean[:, kind]).numpy(), bounds=(0, float("inf")), tol=1e-12).x
        torch.testing.assert_close(solved[:, kind], torch.from_numpy(expected), atol=1e-5, rtol=0)


def test_statistics_that_are_excluded_are_zero_and_correct_the_others() -> None:
    found, root = of_normal_law(0)
    largest = torch.ones(4, 3)
    largest[1], largest[:, 2] = 0, 0
    solved = at_least_zero(found, largest)
    assert not bool(solved[largest == 0].any())
    free = [0, 2, 3]
    for kind in range(2):
        target = (root @ found.mean[:, kind]).numpy()
        expected = lsq_linear(root[:, free].numpy(), target, bounds=(0, float("inf")), tol=1e-12).x
        torch.testing.assert_close(solved[free, kind], torch.from_numpy(expected), atol=1e-5, rtol=0)
    positive = Posterior(found.mean.abs(), found.covariance, found.scale)
    assert torch.equal(at_least_zero(positive), positive.mean)


def test_whole_numbers_are_recovered_at_full_rank() -> None:
    truth, examples = shares(), torch.full((CLIENTS,), 20)
    sums = exact(random_groups(16), truth)
    errors = [1e-4 * torch.randn(own.shape, generator=generator_for(0, "errors")).double() for own in sums.observed]
    observed = [own + error for own, error in zip(sums.observed, errors, strict=True)]
    found, _ = posterior(SumsOf(sums.weights, observed), ClientLaw(spread=0.2, error=1e-6))
    rounded, certain = whole_numbers_of(found, found.mean, examples)
    assert bool(certain.all())
    torch.testing.assert_close(rounded, truth, atol=1e-12, rtol=0)
    assert not torch.equal(found.mean, truth)


def test_clients_that_are_not_certain_are_not_rounded() -> None:
    examples = torch.full((CLIENTS,), 20)
    found, _ = posterior(exact(random_groups(3), shares()), ClientLaw(spread=0.2, error=1e-9))
    rounded, certain = whole_numbers_of(found, found.mean, examples)
    assert not bool(certain.any())
    assert torch.equal(rounded, found.mean)


def test_the_client_of_the_smallest_variance_of_counts_comes_first() -> None:
    """Of 20 examples, a deviation of a share is 50 times less in counts than of 1,000."""
    mean = torch.tensor([[0.25, 0.25, 0.25, 0.25], [0.1, 0.2, 0.3, 0.4]]).double()
    covariance = torch.diag(torch.tensor([1e-6, 1e-4]).double())
    found = Posterior(mean, covariance, torch.full((4,), 0.1).double())
    _, certain = whole_numbers_of(found, mean, torch.tensor([1000, 20]))
    assert certain.tolist() == [False, True]


def test_counts_that_are_too_far_from_whole_numbers_for_their_law_are_not_rounded() -> None:
    mean = torch.tensor([[0.43, 0.57]]).double()  # 4.3 and 5.7 of 10
    for variance, expected in ((1e-8, False), (1e-3, True)):
        found = Posterior(mean, torch.full((1, 1), variance).double(), torch.full((2,), 0.25).double())
        assert whole_numbers_of(found, mean, torch.tensor([10]))[1].tolist() == [expected]


def clients_with_common_error(seed: int, *, noise: float = 0.0, error: float = 0.05) -> tuple[SumsOf, Tensor]:
    """Sums whose error is the same in all rounds, and the true shares."""
    truth, weights = shares(seed=seed), random_groups(25, seed=seed)
    generator = generator_for(seed, "error")
    common = error * torch.randn(truth.shape[1], generator=generator).double()
    observed = [
        own @ truth + common - common.mean() + noise * torch.randn(1, truth.shape[1], generator=generator).double()
        for own in weights
    ]
    return SumsOf(weights, observed), truth


@pytest.mark.parametrize("noise", [0.0, 1e-4, 1e-3])
@pytest.mark.parametrize("error", [0.003, 0.02, 0.05, 0.2])
def test_no_count_is_certain_and_intervals_hold_under_a_common_error_of_the_sums(noise: float, error: float) -> None:
    examples, inside = torch.full((CLIENTS,), 20), []
    for seed in range(5):
        sums, truth = clients_with_common_error(seed, noise=noise, error=error)
        found, _ = posterior(sums)
        estimated, half = bounded(found, examples)
        inside.append(((estimated - truth).abs() <= half + 1e-9).double())
        certain = whole_numbers_of(found, estimated, examples)[1] & ~torch.tensor(is_refuted(found, examples))
        torch.testing.assert_close(estimated[certain], truth[certain], atol=1e-9, rtol=0)
    assert float(torch.stack(inside).mean()) >= 0.93


def test_a_common_error_is_known_where_each_kind_is_absent_in_some_client() -> None:
    truth, examples = torch.eye(4).double(), torch.full((4,), 20)
    common = torch.tensor([0.1, -0.03, -0.12, 0.05]).double()
    found = Posterior(truth + common, 1e-12 * torch.eye(4).double(), torch.full((4,), 0.2).double())
    assert is_refuted(found, examples)
    estimated, half = within_common_error(found, examples)
    torch.testing.assert_close(estimated, truth, atol=1e-5, rtol=0)
    assert float(half.max()) < 0.03  # the distance from whole numbers, which could be of single clients


def test_a_predicted_error_of_a_sum_does_not_average_out() -> None:
    sums = SumsOf(random_groups(25), [own @ shares() for own in random_groups(25)], [1e-4] * 25)
    found, _ = posterior(sums)
    wide = found.with_common_error(sums.common_error)
    # A kind of the mean scale gets the variance of a sum; the scales differ.
    added = wide.deviation.square() - found.deviation.square()
    torch.testing.assert_close(added, (1e-4 * found.scale / found.scale.mean()).expand_as(added))
    assert sums.first(3).common_error == pytest.approx(1e-4)
    assert SumsOf(sums.weights, sums.observed).common_error == 0
    assert SumsOf(sums.weights, sums.observed, sums.noise, declared=True).common_error == 0


def test_counts_whose_sum_is_wrong_or_that_are_negative_are_never_rounded() -> None:
    examples = torch.tensor([10, 10, 10])
    mean = torch.tensor([[0.51, 0.41], [1.1, -0.1], [0.4999, 0.5001]]).double()  # 5 + 4, 11 - 1, 5 + 5
    found = Posterior(mean, 1e-6 * torch.eye(3).double(), torch.full((2,), 0.25).double())
    rounded, certain = whole_numbers_of(found, mean, examples)
    assert certain.tolist() == [False, False, True]
    assert torch.equal(rounded[:2], mean[:2])
    assert rounded[2].tolist() == [0.5, 0.5]


def test_a_client_that_becomes_certain_corrects_the_others() -> None:
    """Of two clients with a known mean, the second is one minus the first."""
    covariance = torch.tensor([[1e-4, -1e-4], [-1e-4, 1e-4]]).double()
    found = Posterior(torch.tensor([[0.42, 0.58], [0.58, 0.42]]).double(), covariance, torch.ones(2).double())
    rounded, certain = whole_numbers_of(found, found.mean, torch.tensor([10, 10]))
    assert certain.tolist() == [True, True]
    torch.testing.assert_close(rounded, torch.tensor([[0.4, 0.6], [0.6, 0.4]]).double())


def test_first_rounds_keep_what_is_declared() -> None:
    sums = SumsOf(random_groups(4), [torch.ones(1, 2).double()] * 4, [0.1, 0.2, 0.3, 0.4], declared=True)
    first = sums.first(2)
    assert (len(first.weights), list(first.noise), first.declared) == (2, [0.1, 0.2], True)
    assert [noise for _, _, noise in SumsOf(sums.weights, sums.observed).each()] == [0.0] * 4
