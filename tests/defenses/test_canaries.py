"""Canaries: coins that only the key tells, opposite updates, and two worlds of data."""

from collections.abc import Mapping

import pytest
import torch

from fedleak.core.errors import InputError
from fedleak.core.view import CANARY_MINUS, CANARY_PLUS
from fedleak.defenses.base import Update
from fedleak.defenses.canaries import COIN, Canaries
from fedleak.defenses.local_dp import LocalDP

CLIENTS = torch.arange(400)


def made(**options: object) -> Canaries:
    canaries = Canaries(**options)  # type: ignore[arg-type]
    canaries.set_key(b"a secret")
    return canaries


def protected(canaries: Canaries, clients: torch.Tensor = CLIENTS) -> Update:
    update = Update({"w": torch.ones(len(clients), 3), "b": torch.ones(len(clients), 2)}, clients=clients)
    return canaries.protect(update, lambda _: torch.Generator())


def test_coins_are_fair_persistent_and_depend_on_the_key() -> None:
    coins, others = made().coins(CLIENTS), Canaries()
    others.set_key(b"another")
    assert coins.abs().eq(1).all()
    assert 150 < int((coins > 0).sum()) < 250
    assert torch.equal(coins, made().coins(CLIENTS))
    assert 150 < int((coins == others.coins(CLIENTS)).sum()) < 250


def test_a_share_of_the_clients_are_canaries_and_others_are_left_alone() -> None:
    canaries = made(share=0.25)
    chosen, update = canaries.chosen(CLIENTS), protected(canaries)
    assert 70 < int(chosen.sum()) < 130
    assert bool((update.deltas["w"][~chosen] == 1).all())
    worlds, truth = canaries.recorded_facts(CLIENTS)
    assert torch.equal(truth[COIN] != 0, chosen)
    assert not worlds[f"{CANARY_PLUS}w"][~chosen].any()


def test_an_update_canary_sends_its_coin_times_a_public_direction() -> None:
    canaries = made(norm=7.0)
    update, (worlds, truth) = protected(canaries), canaries.recorded_facts(CLIENTS)
    assert set(worlds) == {f"{CANARY_PLUS}w", f"{CANARY_PLUS}b"}
    flat = torch.cat([update.deltas["w"], update.deltas["b"]], 1)
    public = torch.cat([worlds[f"{CANARY_PLUS}w"], worlds[f"{CANARY_PLUS}b"]], 1)
    assert torch.allclose(flat.norm(dim=1), torch.full((400,), 7.0))
    assert torch.allclose(flat, truth[COIN][:, None] * public)
    assert float(torch.nn.functional.cosine_similarity(public[0], public[1], dim=0).abs()) < 0.99


def test_what_is_recorded_follows_the_recorded_clients() -> None:
    canaries = made()
    protected(canaries)
    whole, _ = canaries.recorded_facts(CLIENTS)
    part, coins = canaries.recorded_facts(torch.tensor([7, 3]))
    assert torch.equal(part[f"{CANARY_PLUS}w"], whole[f"{CANARY_PLUS}w"][[7, 3]])
    assert torch.equal(coins[COIN], canaries.coins(CLIENTS)[[7, 3]])


def test_data_canaries_learn_wrong_labels_in_one_world() -> None:
    canaries, clients = made(kind="data", mislabelled=0.5), torch.arange(2)
    mask = torch.tensor([[True, True, True, True], [True, True, False, False]])
    examples = {"label": torch.tensor([[0, 1, 2, 3], [3, 0, 0, 0]]), "tokens": torch.tensor([[[5, 2, 0]] * 4] * 2)}
    changed = canaries.mislabelled_examples(examples, mask, clients)
    assert changed["label"].tolist() == [[3, 2, 2, 3], [0, 0, 0, 0]]
    assert changed["tokens"][0].tolist() == [[1, 1, 0]] * 2 + [[5, 2, 0]] * 2
    clicks = canaries.mislabelled_examples({"label": torch.tensor([[1.0, 0.0, 1.0, 1.0]] * 2)}, mask, clients)
    assert clicks["label"][0].tolist() == [0.0, 1.0, 1.0, 1.0]


def test_data_canaries_go_on_with_the_world_of_their_coin() -> None:
    """The update of a training, and what a client keeps of it, are here the sums of its labels."""
    canaries, mask = made(kind="data"), torch.ones(400, 3, dtype=torch.bool)

    def train(examples: Mapping[str, torch.Tensor]) -> Update:
        sums = examples["label"].sum(1, keepdim=True)
        return Update({"w": sums.expand(-1, 3)}, clients=CLIENTS, private={"own": sums})

    update = canaries.train_locally({"label": torch.zeros(400, 3)}, mask, CLIENTS, train)
    expected = 3.0 * (canaries.coins(CLIENTS) > 0)
    assert torch.equal(update.deltas["w"][:, 0], expected)
    assert torch.equal(update.private["own"][:, 0], expected)
    worlds, _ = canaries.recorded_facts(CLIENTS)
    assert bool((worlds[f"{CANARY_PLUS}w"] == 3).all())
    assert bool((worlds[f"{CANARY_MINUS}w"] == 0).all())


def test_canaries_behind_the_noise_are_refused() -> None:
    noise = LocalDP(clip=1.0, epsilon=8, delta=1e-5)
    with pytest.raises(InputError, match="noise"):
        Canaries().check_order([noise])
