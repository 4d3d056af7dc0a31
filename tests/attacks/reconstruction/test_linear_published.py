"""Published attacks on a linear first layer: what they find, and where they stop."""

import dataclasses

import pytest
import torch
from torch import Tensor

from fedleak.attacks.reconstruction import LinearPeeling, LinearRatio
from fedleak.attacks.reconstruction.estimates import ReconstructionAttack
from fedleak.attacks.reconstruction.linear_layer import LinearEstimate, layer_errors
from fedleak.attacks.reconstruction.linear_published import distinct_ratios
from fedleak.client.engine.local_hyperparameters import LocalTraining
from fedleak.client.network import ClassifierAlgorithm
from fedleak.core.errors import ViewError
from fedleak.core.view import RoundView
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


@pytest.mark.parametrize(("second", "certified"), [(0, 1), (1, 0)])
def test_peeling_certifies_a_ratio_only_if_one_class_explains_all_neurons_that_fit(second: int, certified: int) -> None:
    """A ratio that fits its own neuron as a record of class 0, and another neuron as a record of class 0 or 1."""
    view, truth = server_view(1, 6, double=True)
    assert isinstance(view.algorithm, ClassifierAlgorithm)
    ratio = truth["records"][0, :2].mean(0)
    changes = layer_errors(view.algorithm, view.model, ratio[None], "body.1")[0] / 6
    own, other = changes[0].nonzero().flatten()[:2].tolist()
    bias = torch.zeros_like(view.deltas["body.1.bias"])
    bias[0, own], bias[0, other] = changes[0, own], changes[second, other]
    weight = torch.zeros_like(view.deltas["body.1.weight"])
    weight[0, own], weight[0, other] = ratio.flatten() * bias[0, own], truth["records"][0, 2].flatten() * bias[0, other]
    update = {"body.1.weight": -0.1 * weight, "body.1.bias": -0.1 * bias}
    estimate = run(LinearPeeling(), dataclasses.replace(view, deltas={**view.deltas, **update}), LinearEstimate)
    assert int(estimate.certified.sum()) == certified


def test_equal_ratios_of_a_pass_and_of_earlier_passes_are_tried_once() -> None:
    ratios = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1e-9], [0.5, 0.5]], dtype=torch.float64)
    found = torch.tensor([[0.0, 1.0]], dtype=torch.float64)
    assert distinct_ratios(ratios, found[:0], 1e-6).tolist() == [0, 1, 3]
    assert distinct_ratios(ratios, found, 1e-6).tolist() == [0, 3]


def test_peeling_needs_one_step() -> None:
    view, _ = server_view(local=LocalTraining(optimizer="sgd", learning_rate=0.1, epochs=2))
    with pytest.raises(ViewError, match="step"):
        run(LinearPeeling(), view, LinearEstimate)
