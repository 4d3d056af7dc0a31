"""What a shared metric says of clicks: metrics by hand, randomised response by its law, posteriors by enumeration."""

import itertools
import math

import pytest
import torch
from torch import Tensor

from fedleak.attacks.interactions.estimates import InteractionEstimate
from fedleak.attacks.ranking.metric_posterior import MetricPosterior, click_posterior
from fedleak.attacks.ranking.priors import PriorOnly
from fedleak.client.click_models import patterns, sample_patterns, uniform_log_law
from fedleak.client.foltr_es import (
    LEVELS,
    UTILITY,
    FOLtRESAlgorithm,
    ListMetric,
    levels,
    respond,
    response_law,
    truthful_probability,
    units,
)
from fedleak.client.fpdgd import FPDGDAlgorithm
from fedleak.core.errors import ViewError
from fedleak.core.scoring import auc_per_victim
from fedleak.core.view import RoundView
from tests.attacks.runs import plain_view, run


def learner(**options: object) -> FOLtRESAlgorithm:
    arguments: dict[str, object] = {"metric": "max-rr", "numbers": 1, "truthful": 1.0, "click_model": "informational"}
    return FOLtRESAlgorithm(**(arguments | {"grade_law": [0.8, 0.13, 0.07]} | options))  # type: ignore[arg-type]


def view_of(clicks: Tensor, shared: Tensor, clients: FOLtRESAlgorithm | FPDGDAlgorithm) -> RoundView:
    """A view of lists without padding, ``(V, Q, L)`` clicks and ``(V, numbers)`` metrics."""
    victims, lists, length = clicks.shape
    return plain_view(
        victims,
        example_counts=torch.full((victims,), lists),
        deltas={UTILITY: shared},
        model={"ranker.weight": torch.zeros(2)},
        served=torch.arange(lists * length).expand(victims, -1),
        lists=torch.arange(lists).repeat_interleave(length).expand(victims, -1),
        algorithm=clients,
    )


def test_metrics_by_hand() -> None:
    clicks = torch.tensor([[0.0, 0, 0, 0], [1, 0, 1, 0], [0, 0, 1, 1], [0, 0, 0, 1]])
    steps, one = units("max-rr")
    torch.testing.assert_close(steps[levels("max-rr", clicks)] / one, torch.tensor([0, 1, 1 / 3, 1 / 4]))
    whole = sum(1 / math.log2(place + 1) for place in range(1, 11))
    expected = [round(10 * share / whole) for share in (0, 1 + 1 / 2, 1 / 2 + 1 / math.log2(5), 1 / math.log2(5))]
    assert levels("dcg", clicks).tolist() == expected
    assert levels("dcg", torch.ones(10)).item() == LEVELS - 1


def test_units_are_exact() -> None:
    steps, one = units("max-rr")
    assert [int(step) * rank for rank, step in enumerate(steps.tolist()) if rank] == [one] * 10


@pytest.mark.parametrize("epsilon", [0.5, 4.5])
def test_randomised_response_keeps_its_budget(epsilon: float) -> None:
    law = response_law(truthful_probability(epsilon))
    torch.testing.assert_close(law.sum(1), torch.ones(LEVELS, dtype=torch.float64))
    assert float((law[:, None] / law[None]).max().log()) == pytest.approx(epsilon)


def test_answers_follow_the_law() -> None:
    truth = torch.full((40_000,), 3)
    answers = respond(truth, 0.6, torch.Generator().manual_seed(0))
    found = torch.bincount(answers, minlength=LEVELS) / len(truth)
    torch.testing.assert_close(found, response_law(0.6)[3].float(), atol=0.01, rtol=0)


@pytest.mark.parametrize("truthful", [1.0, 0.7])
@pytest.mark.parametrize("metric", ["max-rr", "dcg"])
def test_posterior_equals_the_sum_over_all_clicks_and_answers(metric: ListMetric, truthful: float) -> None:
    generator = torch.Generator().manual_seed(1)
    prior = torch.rand(1, 2, 8, generator=generator, dtype=torch.float64)
    prior /= prior.sum(-1, keepdim=True)
    clients = learner(metric=metric, truthful=truthful)
    steps, one = units(metric)
    codes = patterns(3).double()
    level, law = levels(metric, codes), response_law(truthful)
    told = int(steps[level[5]] + steps[level[2]])
    total, clicked = 0.0, torch.zeros(2, 3, dtype=torch.float64)
    for a, b, said, also in itertools.product(range(8), range(8), range(LEVELS), range(LEVELS)):
        if int(steps[said] + steps[also]) == told:
            chance = prior[0, 0, a] * prior[0, 1, b] * law[level[a], said] * law[level[b], also]
            total += float(chance)
            clicked += chance * torch.stack([codes[a], codes[b]])
    found = click_posterior(prior, torch.tensor([told / one / 2], dtype=torch.float64), clients)
    torch.testing.assert_close(found[0], clicked / total)


def test_an_impossible_report_gives_the_prior() -> None:
    prior = torch.zeros(1, 1, 4, dtype=torch.float64)
    prior[0, 0, 1] = 1  # the first document alone was clicked: MaxRR is 1
    found = click_posterior(prior, torch.tensor([0.5], dtype=torch.float64), learner())
    assert found[0, 0].tolist() == [1, 0]


def scored(victims: int, lists: int, *, shuffled: bool = False) -> tuple[float, float]:
    """Mean AUC of the posterior and of the prior alone, on simulated clients of one number, uniform clicks."""
    generator = torch.Generator().manual_seed(2)
    mask = torch.ones(victims, lists, 6, dtype=torch.bool)
    clicks = sample_patterns(uniform_log_law(mask, every=True), generator)
    clients = learner()
    sent = clients.simulate_lists({}, torch.zeros(*mask.shape, 1), mask, clicks)[UTILITY]
    view = view_of(clicks, sent.roll(1, 0) if shuffled else sent, clients)
    found = []
    for attack in (MetricPosterior(prior="uniform"), PriorOnly(prior="uniform")):
        scores = run(attack, view, InteractionEstimate).scores
        found.append(float(auc_per_victim(scores, clicks.flatten(1), view.served_mask).nanmean()))
    return found[0], found[1]


def test_one_list_leaks_and_many_hide_each_other() -> None:
    one, guessed = scored(300, 1)
    many, _ = scored(100, 8)
    assert guessed == 0.5
    assert one > 0.65
    assert 0.5 < many < one - 0.05


def test_another_clients_number_says_nothing() -> None:
    assert abs(scored(300, 1, shuffled=True)[0] - 0.5) < 0.04


def test_two_numbers_speak_of_two_halves() -> None:
    clicks = torch.tensor([[[1.0, 0, 0], [0, 0, 0]]])
    view = view_of(clicks, torch.tensor([[1.0, 0.0]]), learner(numbers=2))
    estimate = run(MetricPosterior(prior="uniform"), view, InteractionEstimate)
    torch.testing.assert_close(estimate.scores[0], torch.tensor([1.0, 0.5, 0.5, 0, 0, 0]))


def test_other_clients_are_refused() -> None:
    clicks = torch.zeros(1, 3, 3)
    with pytest.raises(ViewError, match="parts"):
        run(MetricPosterior(), view_of(clicks, torch.zeros(1, 2), learner(numbers=2)), InteractionEstimate)
    fpdgd = FPDGDAlgorithm(learning_rate=0.1, click_model="informational", grade_law=[0.8, 0.1, 0.1])
    with pytest.raises(ViewError, match="FOLtRESAlgorithm"):
        run(MetricPosterior(), view_of(clicks, torch.zeros(1, 1), fpdgd), InteractionEstimate)
