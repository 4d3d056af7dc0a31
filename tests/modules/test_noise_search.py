"""The search for a noise scale: the same made-up clients at every scale, and CMA-ES finds a known maximum."""

import dataclasses
import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from attacks.base import Attack, InteractionEstimate, RankingLearner, ServerView, ThreatModel
from attacks.interactions.chance import Chance
from attacks.interactions.lists import ranked_lists
from attacks.metrics import auc_per_victim
from defenses.base import Defense, Update
from defenses.local_dp import LocalDP
from modules.list_matching import ManipulatedListMatching
from modules.noise_search import MadeUpClients, evolve_scale, mean_auc
from modules.registry import learner_from
from tests.modules.test_fpdgd import ranker, source


def made_up(**options: object) -> MadeUpClients:
    data = source()
    module = ranker(data, **options)
    model = module.public_parameters()
    lists = module.interact(data.cohort(0), model).examples
    learner = learner_from(module.learner_description())
    assert isinstance(learner, RankingLearner)
    return MadeUpClients(
        model=model,
        features=lists["features"],
        mask=lists["shown"],
        learner=learner,
        defenses=tuple(module.defenses),
    )


class Seen(Attack):
    """Guesses, and keeps what it was given."""

    name = "seen"
    threat_model = ThreatModel(sees="everything", knows="nothing", needs=("features",))
    view: ServerView

    def run(self, view: ServerView, *, generator: torch.Generator) -> InteractionEstimate:
        self.view = view
        return Chance().run(view, generator=generator)


def test_a_scale_changes_the_noise_and_nothing_else() -> None:
    clients, small, large = made_up(), Seen(), Seen()
    one = clients.attacked(0.1, small, seed=3)
    two = clients.attacked(0.4, large, seed=3)
    assert torch.equal(one, two)  # guesses against the same clicks
    assert small.view.features is not None
    assert large.view.features is not None
    torch.testing.assert_close(large.view.features, 4 * small.view.features)
    assert torch.equal(ranked_lists(small.view).mask, clients.mask)
    assert not torch.equal(one, clients.attacked(0.1, small, seed=4))


def test_noise_of_a_good_scale_is_read_and_local_dp_hides_it() -> None:
    attack = ManipulatedListMatching(max_iter=30)
    assert mean_auc(made_up().attacked(0.1, attack, seed=0)) > 0.85
    private = made_up(defenses=[LocalDP(clip=0.25, epsilon=1, delta=1e-8)])
    assert abs(mean_auc(private.attacked(0.1, attack, seed=0)) - 0.5) < 0.12


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
    clients, seen = made_up(hidden=16, defenses=[NoiseAlone()]), Seen()
    clients.attacked(0.1, seen, seed=0)
    hidden, output = seen.view.deltas["hidden.weight"].flatten(1)[:, :16], seen.view.deltas["output.weight"]
    assert not torch.isclose(hidden, output).any()
