"""Published attacks on a linear first layer: what they find, and where they stop."""

import dataclasses

import pytest
import torch
from torch import Tensor

from attacks.reconstruction import LinearPeeling, LinearRatio
from attacks.reconstruction.estimates import ReconstructionAttack
from attacks.reconstruction.linear_layer import LinearEstimate
from client.engine.local_hyperparameters import LocalTraining
from protocol.errors import ViewError
from protocol.view import RoundView
from tests.attacks.runs import of_noise, of_others, run
from tests.inversion_toys import server_view


def scores(attack: ReconstructionAttack, view: RoundView, truth: dict[str, Tensor]) -> dict[str, Tensor]:
    return dict(run(attack, view, LinearEstimate).score(view, truth).metrics)


def test_ratios_are_the_records_that_excite_a_neuron_alone() -> None:
    """By hand: the share of records with a neuron of their own."""
    view, truth = server_view(3, 6)
    weight, bias = view.model["body.1.weight"], view.model["body.1.bias"]
    excited = truth["records"].flatten(2) @ weight.T + bias > 0
    alone = (excited & (excited.sum(1, keepdim=True) == 1)).any(2)
    found = scores(LinearRatio(), view, truth)
    assert 0 < float(alone.double().mean()) <= 1
    assert torch.equal(found["recovered"], alone.double().mean(1))
    assert int(found["certified"].sum()) == 0


@pytest.mark.parametrize("double", [True, False])
def test_peeling_finds_at_least_the_ratios_and_their_classes(double: bool) -> None:
    view, truth = server_view(3, 6, double=double)
    peeled, ratios = scores(LinearPeeling(), view, truth), scores(LinearRatio(), view, truth)
    assert bool((peeled["recovered"] >= ratios["recovered"]).all())
    if double:
        assert float(peeled["recovered"].mean()) > float(ratios["recovered"].mean())
    assert peeled["label-accuracy"].tolist() == [1, 1, 1]
    assert int(peeled["false-certified"].sum()) == 0


def test_peeling_finds_nothing_in_noise_or_with_a_foreign_model() -> None:
    view, truth = server_view(double=True)
    foreign, _ = server_view(seed=1, double=True)
    for decoupled in (of_noise(view), dataclasses.replace(view, model=foreign.model)):
        assert int(scores(LinearPeeling(), decoupled, truth)["certified"].sum()) == 0
    assert int(scores(LinearPeeling(), of_others(view), truth)["recovered"].sum()) == 0


def test_peeling_needs_one_step() -> None:
    view, _ = server_view(local=LocalTraining(optimizer="sgd", learning_rate=0.1, epochs=2))
    with pytest.raises(ViewError, match="step"):
        run(LinearPeeling(), view, LinearEstimate)
