"""Links by the cosine of updates: found where clients differ, at chance where the updates are others', or noise."""

import dataclasses

import pytest
import torch

from fedleak.attacks.linkability import similarity
from fedleak.attacks.linkability.links import LinkEstimate
from fedleak.attacks.linkability.similarity import Linkability, PlainCosine
from fedleak.core.history import History
from fedleak.core.seeding import generator_for
from tests.attacks.runs import plain_view, run

CLIENTS, ROUNDS, WIDTH = 12, 3, 40


def toy(*, common: float = 0.0, own: float = 1.0, seed: int = 0) -> tuple[History, torch.Tensor]:
    """Updates of clients: what a round has in common, what a client has of its own in every round, and noise."""
    generator = generator_for(seed, "toy")
    habits = torch.randn(CLIENTS, WIDTH, generator=generator)
    parts, clients = [], []
    for _ in range(ROUNDS):
        order = torch.randperm(CLIENTS, generator=generator)
        drift, noise = torch.randn(WIDTH, generator=generator), torch.randn(CLIENTS, WIDTH, generator=generator)
        parts.append(common * drift + own * habits[order] + noise)
        clients.append(order)
    updates = torch.cat(parts)
    scales = torch.cat([torch.ones(WIDTH // 2), torch.full((WIDTH - WIDTH // 2,), 0.01)])
    deltas = {"a.weight": updates[:, : WIDTH // 2], "steps": torch.ones(len(updates))}
    deltas["b.weight"] = (updates * scales)[:, WIDTH // 2 :].reshape(len(updates), -1, 2)
    pseudonyms = torch.randperm(len(updates), generator=generator)
    model = {name: torch.zeros(value.shape[1:]) for name, value in deltas.items()}
    whole = plain_view(len(updates), deltas=deltas, model=model).common() | {"pseudonyms": pseudonyms}
    view = History(**whole, sent_in=torch.arange(ROUNDS).repeat_interleave(CLIENTS))
    return view, torch.cat(clients)


def auc(attack: PlainCosine, view: History, clients: torch.Tensor) -> float:
    estimate = run(attack, view, LinkEstimate)
    return float(estimate.score(view, {"clients": clients}).metrics["auc"].mean())


def test_clients_with_habits_are_linked() -> None:
    assert auc(Linkability(), *toy()) > 0.95
    assert auc(PlainCosine(), *toy()) > 0.8


def test_what_all_clients_have_in_common_hides_them_from_the_plain_cosine_only() -> None:
    assert auc(Linkability(), *toy(common=10)) > 0.95
    assert auc(PlainCosine(), *toy(common=10)) < 0.75


@pytest.mark.parametrize("attack", [Linkability(), PlainCosine()])
def test_updates_without_habits_or_of_others_are_at_chance(attack: PlainCosine) -> None:
    found = [auc(attack, *toy(own=0, seed=seed)) for seed in range(8)]
    assert sum(found) / len(found) == pytest.approx(0.5, abs=0.05)
    others = []
    for seed in range(8):
        view, clients = toy(seed=seed)
        shuffled = torch.randperm(CLIENTS * ROUNDS, generator=generator_for(seed, "others"))
        others.append(auc(attack, dataclasses.replace(view, deltas=view.select(shuffled).deltas), clients))
    assert sum(others) / len(others) == pytest.approx(0.5, abs=0.05)


def test_names_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    view, clients = toy()
    before = auc(Linkability(), view, clients)
    assert auc(Linkability(), dataclasses.replace(view, pseudonyms=view.pseudonyms.flip(0)), clients) == before
    monkeypatch.setattr(similarity, "_NUMBERS", WIDTH // 2)
    assert 0.6 < auc(Linkability(), view, clients) < before
