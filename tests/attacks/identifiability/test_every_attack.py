"""Attacks on private vectors: they find them where messages carry them, and nothing where messages do not."""

import dataclasses

import pytest
import torch

from fedleak.attacks.identifiability.likelihood import PACCatalogue, PACConsensus, PACLikelihood
from fedleak.attacks.identifiability.pac import PAC, MeanItem, PACSpectral, RandomVector, VectorEstimate
from fedleak.client.engine.local_hyperparameters import LocalTraining
from fedleak.client.margin_losses import LossName
from fedleak.client.matrix_factorization import MFAlgorithm
from fedleak.core.attack import Attack
from fedleak.core.errors import ViewError
from fedleak.core.release import Release
from fedleak.core.seeding import generator_for
from fedleak.core.view import ITEM_EMBEDDING
from tests.attacks.runs import of_others, run, with_deltas
from tests.vector_toys import Victims, agreeing, campaign

ON_MESSAGES: list[Attack] = [PAC(), PACSpectral(), PACLikelihood()]
READING = pytest.mark.parametrize("attack", ON_MESSAGES, ids=lambda attack: attack.name)
EVERY = pytest.mark.parametrize(
    "attack", [*ON_MESSAGES, PACCatalogue(), PACConsensus()], ids=lambda attack: attack.name
)


def metrics_of(attack: Attack, victims: Victims) -> dict[str, torch.Tensor]:
    view, truth = victims
    return dict(attack(view, generator=generator_for(0, "attack")).score(view, truth).metrics)


@READING
@pytest.mark.parametrize("loss", ["margin", "hinge", "log"])
def test_without_noise_the_vector_is_found_up_to_its_length(attack: Attack, loss: LossName) -> None:
    found = metrics_of(attack, campaign(rate=0.2, interactions=40, noise=0.0, loss=loss))
    assert float(found["error"].max()) == 0
    assert float(found["cosine"].min()) > 1 - 1e-9


@READING
def test_a_client_that_likes_most_is_found_with_the_other_sign(attack: Attack) -> None:
    view, truth = campaign(rate=0.8, interactions=40, noise=0.0)
    assert float(metrics_of(attack, (view, truth))["error"].max()) == 0
    believed = dataclasses.replace(view, priors={})
    assert float(metrics_of(attack, (believed, truth))["flipped"].min()) == 1


def test_the_published_estimate_is_the_sum_of_the_text() -> None:
    view, truth = campaign(rate=0.3, interactions=50, noise=0.0)
    estimate = run(PAC(), view, VectorEstimate)
    assert view.updates is not None
    mean_label = ((2 * truth["labels"] - 1) * view.updates).sum(1) / view.updates.sum(1)
    assert view.updates.sum(1).tolist() == [500.0] * 24
    torch.testing.assert_close(estimate.vectors, -mean_label[:, None].double() * truth["user_vector"])


def test_under_noise_ours_do_not_pay_for_a_rate_near_one_half() -> None:
    # The published sum shrinks the signal to a tenth, 1 - 2p; where errors are small they grow as one over the signal.
    victims = campaign(rate=0.45, interactions=100, noise=0.05, victims=48)
    errors = {attack.name: float(metrics_of(attack, victims)["error"].mean()) for attack in ON_MESSAGES}
    assert errors["pac"] > 5 * errors["pac-spectral"]
    assert errors["pac"] > 5 * errors["pac-likelihood"]


def test_likelihood_learns_that_nearly_all_labels_agree() -> None:
    victims = campaign(rate=0.02, interactions=30, noise=0.3, victims=64)
    errors = {attack.name: float(metrics_of(attack, victims)["error"].mean()) for attack in ON_MESSAGES}
    assert errors["pac-spectral"] > 1.2 * errors["pac"]
    assert errors["pac-likelihood"] < 1.05 * errors["pac"]


def test_the_catalogue_tells_the_sign_that_few_labels_cannot() -> None:
    view, truth = campaign(rate=0.48, interactions=2, noise=0.01, victims=64)
    # Users of a trained recommender dislike most items: item vectors with a mean against which all of them lie.
    users = truth["user_vector"]
    away = users.mean(0) + 1
    shift = torch.where((users @ away < 0)[:, None], -1.0, 1.0)
    lean = dataclasses.replace(view, model={ITEM_EMBEDDING: view.model[ITEM_EMBEDDING] - 3 * away})
    turned = {**truth, "user_vector": users * shift}
    deltas = {ITEM_EMBEDDING: view.deltas[ITEM_EMBEDDING] * shift[:, None]}
    lean = dataclasses.replace(lean, deltas=deltas)
    by_labels = metrics_of(PACLikelihood(), (lean, turned))["flipped"].mean()
    by_catalogue = metrics_of(PACCatalogue(), (lean, turned))["flipped"].mean()
    assert float(by_labels) > 0.2
    assert float(by_catalogue) < 0.1


@EVERY
def test_noise_and_another_clients_messages_give_chance(attack: Attack) -> None:
    view, truth = campaign(rate=0.3, interactions=100, noise=0.05, victims=64)
    noise = torch.randn(view.deltas[ITEM_EMBEDDING].shape, generator=generator_for(0, "noise"), dtype=torch.float64)
    independent = dataclasses.replace(view, deltas={ITEM_EMBEDDING: noise * view.served_mask[..., None]})
    next_one = view.select(torch.arange(view.victims).roll(1))
    # Only what the client sent is another's; what the server knows of the client stays.
    others = dataclasses.replace(view, deltas=next_one.deltas, served=next_one.served, updates=next_one.updates)
    for changed in (independent, others):
        assert abs(float(metrics_of(attack, (changed, truth))["error"].mean()) - 0.5) < 0.06


def test_baselines_read_no_message() -> None:
    view, truth = campaign(rate=0.3, interactions=10, noise=0.0, victims=64)
    other = with_deltas(view, torch.zeros_like)
    for attack in (RandomVector(), MeanItem()):
        assert torch.equal(metrics_of(attack, (view, truth))["error"], metrics_of(attack, (other, truth))["error"])
        assert abs(float(metrics_of(attack, (view, truth))["error"].mean()) - 0.5) < 0.06


@READING
def test_a_victim_alone_scores_as_in_company(attack: Attack) -> None:
    view, truth = campaign(rate=0.4, interactions=30, noise=0.05)
    apart = metrics_of(attack, (view.select(torch.arange(1)), {name: value[:1] for name, value in truth.items()}))
    together = metrics_of(attack, (view, truth))
    assert float(apart["error"][0]) == float(together["error"][0])


def test_what_no_attack_can_use_is_refused() -> None:
    view, _ = campaign(rate=0.3, interactions=10, noise=0.0)
    flat = MFAlgorithm(dim=16, margin_loss="perceptron", local=LocalTraining())
    with pytest.raises(ViewError, match="Assumption 2"):
        PAC()(dataclasses.replace(view, algorithm=flat), generator=generator_for(0, "attack"))
    silent = dataclasses.replace(with_deltas(view, torch.zeros_like), updates=None)
    with pytest.raises(ViewError, match="client at 0"):
        PAC()(silent, generator=generator_for(0, "attack"))


def test_clients_who_agree_show_each_others_sign_without_anyones_leaning() -> None:
    victims = agreeing(campaign(rate=0.6, interactions=100, noise=0.05, victims=60), taste=0.7)
    rates = victims[1]["labels"].mean(1)
    assert sorted(set(rates.tolist())) == pytest.approx([0.4, 0.6])
    assert float(metrics_of(PACLikelihood(), victims)["flipped"].mean()) > 0.5  # assumes that all dislike most
    assert float(metrics_of(PACConsensus(majority="likes"), victims)["flipped"].mean()) < 0.05
    assert float(metrics_of(PACConsensus(majority="dislikes"), victims)["flipped"].mean()) > 0.95


def hidden(*, noise: float, victims: int = 32, rounds: int = 20) -> Victims:
    """Clients who send the whole table with noise in every row, so that the server does not see which they labelled."""
    view, truth = campaign(rate=0.3, interactions=rounds, noise=0.0, victims=victims)
    assert view.served is not None
    served, (items, dim) = view.served, view.model[ITEM_EMBEDDING].shape
    table = torch.zeros(victims, items, dim, dtype=torch.float64)
    client, place = (served >= 0).nonzero(as_tuple=True)
    table[client, served[client, place]] = view.deltas[ITEM_EMBEDDING][client, place]
    draw = torch.randn(table.shape, generator=generator_for(0, "whole"), dtype=torch.float64)
    labels = torch.full((victims, items), -1.0)
    labels[client, served[client, place]] = truth["labels"][client, place]
    whole = dataclasses.replace(
        view,
        deltas={ITEM_EMBEDDING: table + noise * rounds**0.5 * draw},
        row_parameters=frozenset(),
        served=None,
        updates=None,
        messages=torch.full((victims,), rounds),
        releases=(Release(noise_scale=noise, parameters=(ITEM_EMBEDDING,)),),
    )
    return whole, {"user_vector": truth["user_vector"], "labels": labels}


def test_labels_of_some_items_are_refused_where_all_are_needed() -> None:
    view, truth = hidden(noise=0.05, victims=4)
    with pytest.raises(ViewError, match="items"):
        metrics_of(PAC(), (view, {**truth, "labels": truth["labels"][:, :9]}))


@EVERY
def test_noise_in_every_row_hides_the_items_and_not_the_vector(attack: Attack) -> None:
    view, truth = hidden(noise=0.05)
    found = metrics_of(attack, (view, truth))
    if attack.name not in ("pac-catalogue", "pac-consensus"):  # these users neither lean over the catalogue nor agree
        assert float(found["error"].mean()) < 0.25
        assert float(found["label-error"].mean()) < 0.75
    others = of_others(view)
    assert abs(float(metrics_of(attack, (others, truth))["error"].mean()) - 0.5) < 0.08


def test_only_rows_with_a_label_vote_on_the_sign() -> None:
    # Noise rows hardly turn the singular vector; they outvote the labelled ones when each row's sign counts once.
    victims = hidden(noise=0.05, victims=64)
    errors = {attack.name: float(metrics_of(attack, victims)["error"].mean()) for attack in ON_MESSAGES}
    assert errors["pac-likelihood"] < 0.8 * min(errors["pac"], errors["pac-spectral"])
