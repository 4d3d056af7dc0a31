"""The search for a noise scale: the same made-up clients at every scale, and CMA-ES finds a known maximum."""

import dataclasses
import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from fedleak.attacks.ranking.list_matching import ListMatching
from fedleak.callbacks.noise_search import simulated_lists
from fedleak.client.ranked_lists import ranked_lists
from fedleak.core.scoring import auc_per_victim
from fedleak.defenses.base import Defense, Update
from fedleak.defenses.local_dp import LocalDP
from fedleak.server.noise_search import SimulatedLists, evolve_scale, mean_auc
from tests.ranking_toys import ranker, source


def made_up(**options: object) -> SimulatedLists:
    data = source()
    return simulated_lists(ranker(data, **options), data, 100)


def test_a_scale_changes_the_noise_and_nothing_else() -> None:
    clients = made_up()
    (small, one), (large, two) = clients.simulate(0.1, seed=3), clients.simulate(0.4, seed=3)
    assert torch.equal(one, two)
    assert small.features is not None
    assert large.features is not None
    torch.testing.assert_close(large.features, 4 * small.features)
    assert torch.equal(ranked_lists(small).mask, clients.mask)
    assert small.manipulation == "noise"
    assert not torch.equal(one, clients.simulate(0.1, seed=4)[1])


def test_noise_of_a_good_scale_is_read_and_local_dp_hides_it() -> None:
    def auc(clients: SimulatedLists) -> float:
        view, clicks = clients.simulate(0.1, seed=0)
        estimate = ListMatching(max_iter=30)(view, generator=torch.Generator().manual_seed(0))
        return mean_auc(estimate.score(view, {"labels": clicks}).metrics["auc"])

    assert auc(made_up()) > 0.85
    assert abs(auc(made_up(defenses=[LocalDP(clip=0.25, epsilon=1, delta=1e-8)])) - 0.5) < 0.12


def test_cma_es_finds_a_known_maximum() -> None:
    def objective(scale: float) -> float:
        return -((math.log10(scale) + 1) ** 2)

    found = evolve_scale(objective, lowest=1e-3, highest=10, generations=12, population=6)
    assert abs(math.log10(found) + 1) < 0.15
    assert found == evolve_scale(objective, lowest=1e-3, highest=10, generations=12, population=6)


def test_a_search_stays_within_its_range_which_is_not_empty() -> None:
    assert evolve_scale(lambda scale: scale, lowest=0.01, highest=1, generations=12) <= 1
    with pytest.raises(ValueError, match="lowest"):
        evolve_scale(lambda scale: scale, lowest=1, highest=1)


def test_no_auc_counts_as_guessing() -> None:
    nothing: Tensor = torch.full((3,), torch.nan)
    assert mean_auc(nothing) == 0.5
    scores, labels = torch.tensor([[0.1, 0.9]]), torch.tensor([[0.0, 1.0]])
    assert mean_auc(auc_per_victim(scores, labels, torch.ones(1, 2, dtype=torch.bool))) == 1.0


class NoiseAlone(Defense):
    """Sends noise in place of every parameter."""

    def protect(self, update: Update, generators: Callable[[int], torch.Generator]) -> Update:
        sent = {name: torch.empty_like(value) for name, value in update.deltas.items()}
        for value in sent.values():
            for client, own in enumerate(value):
                own.copy_(torch.randn(own.shape, generator=generators(client)))
        return dataclasses.replace(update, deltas=sent)


def test_two_parameters_do_not_get_the_same_noise() -> None:
    """Of 16 numbers and more, two generators of one seed draw the same."""
    view, _ = made_up(hidden=16, defenses=[NoiseAlone()]).simulate(0.1, seed=0)
    hidden, output = view.deltas["hidden.weight"].flatten(1)[:, :16], view.deltas["output.weight"]
    assert not torch.isclose(hidden, output).any()
