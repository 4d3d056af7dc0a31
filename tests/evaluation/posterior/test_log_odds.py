"""Log odds of answers: against a known law, never by the person's own answers, and for exclusive answers."""

import pytest
import torch
from torch import Tensor

from fedleak.evaluation.posterior.log_odds import Evidence, cross_fitted, folds_of

GENERATOR = 0


def fitted(columns: list[Evidence], labels: Tensor, people: Tensor, questions: Tensor | None = None) -> Tensor:
    generator = torch.Generator().manual_seed(GENERATOR)
    known = torch.ones_like(labels)
    return cross_fitted(columns, labels, people, questions, labelled=known, generator=generator)


@pytest.fixture
def drawn() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Prior log odds, Gaussian log-likelihood ratios, labels and people of 40 people with 200 questions each."""
    generator = torch.Generator().manual_seed(1)
    prior = torch.randn(8000, generator=generator, dtype=torch.float64) * 1.5 - 1
    labels = torch.rand(8000, generator=generator) < prior.sigmoid()
    signal = torch.randn(8000, generator=generator, dtype=torch.float64) + labels * 1.2
    return prior, 1.2 * signal - 0.72, labels, torch.arange(40).repeat_interleave(200)


def test_log_odds_of_known_laws_are_their_sum(drawn: tuple[Tensor, Tensor, Tensor, Tensor]) -> None:
    prior, ratio, labels, people = drawn
    found = fitted([Evidence(ratio, linear=True), Evidence(prior)], labels, people)
    true = prior + ratio
    inside = true.abs() < 3
    assert float((found - true)[inside].abs().mean()) < 0.2


def test_scores_that_only_rank_are_as_good_as_likelihood_ratios(drawn: tuple[Tensor, Tensor, Tensor, Tensor]) -> None:
    prior, ratio, labels, people = drawn
    bent = ratio.sinh() * 7 + 3  # a monotone function, which no straight line fits
    found = fitted([Evidence(bent), Evidence(prior)], labels, people)
    inside = (prior + ratio).abs() < 3
    assert float((found - prior - ratio)[inside].abs().mean()) < 0.35


def test_answers_of_a_person_do_not_calibrate_its_own(drawn: tuple[Tensor, Tensor, Tensor, Tensor]) -> None:
    prior, ratio, labels, people = drawn
    before = fitted([Evidence(ratio), Evidence(prior)], labels, people)
    changed = labels.clone()
    changed[people == 3] = ~changed[people == 3]
    after = fitted([Evidence(ratio), Evidence(prior)], changed, people)
    assert torch.equal(before[people == 3], after[people == 3])
    assert not torch.equal(before, after)


def test_ratios_of_other_orders_of_magnitude_stay_certain() -> None:
    """Exact attacks are sure by 1e2 nats about one person and by 1e8 about the next."""
    people = torch.arange(20).repeat_interleave(50)
    labels = torch.arange(1000) % 10 == 0
    size = 10.0 ** (2 + 6 * (people % 5).double() / 4)
    prior = torch.randn(1000, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    found = fitted([Evidence(labels.double().mul(2).sub(1) * size, linear=True), Evidence(prior)], labels, people)
    assert float(found[labels].min()) > float(found[~labels].max())
    places = torch.arange(1000) // 10
    odds = fitted([Evidence(labels * size, linear=True), Evidence(prior)], labels, people, places)
    assert float(odds[labels].min()) > -0.1


def test_noise_adds_nothing(drawn: tuple[Tensor, Tensor, Tensor, Tensor]) -> None:
    prior, _, labels, people = drawn
    noise = torch.randn(len(prior), generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    sign = torch.where(labels, 1.0, -1.0)
    with_noise, without = (
        torch.nn.functional.logsigmoid(sign * fitted(columns, labels, people)).mean()
        for columns in ([Evidence(noise), Evidence(prior)], [Evidence(prior)])
    )
    assert abs(float(with_noise - without)) < 0.002


def test_probabilities_of_exclusive_answers_add_up_to_one() -> None:
    generator = torch.Generator().manual_seed(3)
    questions = torch.arange(300).repeat_interleave(4)
    true = torch.randint(4, (300,), generator=generator)
    labels = torch.arange(4).repeat(300) == true.repeat_interleave(4)
    scores = torch.randn(1200, generator=generator, dtype=torch.float64) + 2 * labels
    found = fitted([Evidence(scores, linear=True)], labels, questions // 10, questions)
    sums = found.exp().reshape(300, 4).sum(1)
    torch.testing.assert_close(sums, torch.ones_like(sums))
    slow = (2 * scores).reshape(300, 4).log_softmax(1).flatten()  # the ratio of two normal densities, 2 apart
    assert float((found.exp() - slow.exp()).abs().mean()) < 0.03


@pytest.mark.parametrize("scores", [torch.zeros(60), torch.arange(60.0) * 1e30, torch.arange(60.0) * 1e-30])
@pytest.mark.parametrize("true", [[3], [0, 1, 2], list(range(59))])
@pytest.mark.parametrize("linear", [True, False])
def test_degenerate_scores_and_answers_give_finite_log_odds(scores: Tensor, true: list[int], linear: bool) -> None:
    labels = torch.zeros(60, dtype=torch.bool)
    labels[true] = True
    found = fitted([Evidence(scores.double(), linear=linear)], labels, torch.arange(60) // 10)
    assert bool(found.isfinite().all())


@pytest.mark.parametrize("seed", range(5))
def test_each_group_has_its_share_of_each_answer(seed: int) -> None:
    """A person who is left out would otherwise make its own answer rarer among the others."""
    women = torch.arange(80) % 10 < 3
    labels, people = torch.stack([women, ~women], dim=1).flatten(), torch.arange(80).repeat_interleave(2)
    fold = folds_of(people, torch.Generator().manual_seed(seed), labels)[::2]
    for answer in (women, ~women):
        counts = torch.bincount(fold[answer], minlength=5)
        assert int(counts.max() - counts.min()) <= 1
    drawn = folds_of(people, torch.Generator().manual_seed(seed))[::2]
    assert not torch.equal(fold, drawn)


@pytest.mark.parametrize("spread", [1e-6, 1e-15, 1e-20])
def test_a_few_scores_of_another_magnitude_than_all_others_give_finite_log_odds(spread: float) -> None:
    draws = torch.Generator().manual_seed(0)
    scores = spread * torch.randn(2000, generator=draws, dtype=torch.float64)
    scores[torch.randperm(2000, generator=draws)[:8]] = 40.0
    labels, people = torch.rand(2000, generator=draws) < 0.3, torch.arange(20).repeat_interleave(100)
    found = fitted([Evidence(scores, linear=True), Evidence(scores * 1.0000001, linear=True)], labels, people)
    assert bool(found.isfinite().all())
