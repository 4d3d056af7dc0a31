"""The search for a noise scale: the same made-up clients at every scale, and CMA-ES finds a known maximum."""

import dataclasses
import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from attacks.ranking.list_matching import ListMatching
from attacks.ranking.lists import ranked_lists
from attacks.scoring import auc_per_victim
from callbacks.noise_search import NoiseSearch, SimulatedLists, evolve_scale, mean_auc
from defenses.base import Defense, Update
from defenses.local_dp import LocalDP
from protocol.errors import InputError
from server.noise_injection import NoiseInjection
from tests import toys
from tests.ranking_toys import ranker, record, source


def made_up(**options: object) -> SimulatedLists:
    data = source()
    return SimulatedLists.of(ranker(data, **options), data, 100)


def test_a_scale_changes_the_noise_and_nothing_else() -> None:
    clients = made_up()
    (small, one), (large, two) = clients.sent(0.1, seed=3), clients.sent(0.4, seed=3)
    assert torch.equal(one, two)
    assert small.features is not None
    assert large.features is not None
    torch.testing.assert_close(large.features, 4 * small.features)
    assert torch.equal(ranked_lists(small).mask, clients.mask)
    assert small.manipulation == "noise"
    assert not torch.equal(one, clients.sent(0.1, seed=4)[1])


def test_noise_of_a_good_scale_is_read_and_local_dp_hides_it() -> None:
    def auc(clients: SimulatedLists) -> float:
        view, clicks = clients.sent(0.1, seed=0)
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


def test_a_search_stays_within_its_range() -> None:
    assert evolve_scale(lambda scale: scale, lowest=0.01, highest=1, generations=12) <= 1


def test_an_empty_range_is_refused() -> None:
    with pytest.raises(ValueError, match="lowest < highest"):
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
    view, _ = made_up(hidden=16, defenses=[NoiseAlone()]).sent(0.1, seed=0)
    hidden, output = view.deltas["hidden.weight"].flatten(1)[:, :16], view.deltas["output.weight"]
    assert not torch.isclose(hidden, output).any()


@pytest.mark.integration
def test_the_search_is_part_of_a_training_and_is_not_repeated(tmp_path: Path) -> None:
    data = source(users=15)
    module = ranker(data)
    search = NoiseSearch(attack={"ranking/raifle": {"max_iter": 2}}, clients=3, generations=1, population=3)
    record(tmp_path, data, module, more=[search])
    assert search.scale is not None
    assert 0.001 <= search.scale <= 1
    assert module.manipulation == NoiseInjection(scale=search.scale)
    assert module.round_settings() == {0: {"scale": search.scale}}
    again = NoiseSearch()
    again.load_state_dict(search.state_dict())
    again.attack = None  # type: ignore[assignment]
    record(tmp_path / "resumed", data, ranker(data), more=[again])
    assert again.scale == search.scale


@pytest.mark.integration
def test_a_learner_without_features_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="FPDGD, for NoiseSearch"):
        toys.train(tmp_path, rounds=1, more=[NoiseSearch()])
