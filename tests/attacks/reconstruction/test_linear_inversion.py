"""Exact records from a linear first layer, and nothing certain where theory does not give them."""

import dataclasses
from typing import Literal

import pytest
import torch
from torch import Tensor

from fedleak.attacks.reconstruction import LinearInversion
from fedleak.attacks.reconstruction.linear_layer import LinearEstimate
from fedleak.attacks.reconstruction.linear_published import LinearRatio
from fedleak.client.engine.local_hyperparameters import LocalTraining
from fedleak.client.nets.classifiers import ClassifierOptions
from fedleak.core.errors import ViewError
from fedleak.core.release import Release
from fedleak.core.seeding import generator_for
from fedleak.core.view import RoundView
from fedleak.evaluation.failures import unfit
from tests.attacks.runs import of_noise, of_others, run, with_deltas, with_noise
from tests.inversion_toys import SHAPE, changed, pictures, server_view, truth_of
from tests.text_toys import seen


def attacked(view: RoundView, **options: int) -> LinearEstimate:
    return run(LinearInversion(**options), view, LinearEstimate)


def scores(view: RoundView, truth: dict[str, Tensor], **options: int) -> dict[str, Tensor]:
    return dict(attacked(view, **options).score(view, truth).metrics)


@pytest.mark.parametrize("double", [False, True])
def test_all_records_of_a_step_are_found_with_their_classes(double: bool) -> None:
    view, truth = server_view(double=double)
    found = scores(view, truth)
    assert found["recovered"].tolist() == [1, 1, 1]
    assert found["label-accuracy"].tolist() == [1, 1, 1]
    assert found["false-certified"].tolist() == [0, 0, 0]


def test_the_only_record_of_a_client_is_certain() -> None:
    view, truth = server_view(records=1)
    found = scores(view, truth)
    assert found["certified"].tolist() == [1, 1, 1]
    assert found["label-accuracy"].tolist() == [1, 1, 1]


@pytest.mark.integration
def test_the_search_finds_what_subtraction_alone_does_not() -> None:
    view, truth = server_view(2, 40, double=True)
    alone, searched = scores(view, truth, programs=0), scores(view, truth)
    assert float(alone["recovered"].max()) < 0.5
    assert float(searched["recovered"].min()) > 0.9
    assert int(searched["false-certified"].sum()) == 0


@pytest.mark.parametrize(
    "options",
    [
        {"epochs": 5},
        {"epochs": 3, "batch_size": 2},
        {"epochs": 3, "momentum": 0.9},
        {"epochs": 3, "weight_decay": 0.01},
        {"epochs": 3, "weight_decay": 0.01, "momentum": 0.5},
    ],
    ids=str,
)
def test_steps_momentum_and_decay_keep_records_exact(options: dict[str, float]) -> None:
    view, truth = server_view(local=LocalTraining(optimizer="sgd", learning_rate=0.1, **options))  # type: ignore[arg-type]
    found = scores(view, truth)
    assert float(found["recovered"].mean()) > 0.9
    assert int(found["false-certified"].sum()) == 0


def test_clipping_changes_nothing() -> None:
    view, truth = server_view()
    clipped = with_deltas(view, lambda delta: delta * 0.01)
    assert torch.equal(scores(clipped, truth)["recovered"], scores(view, truth)["recovered"])


@pytest.mark.parametrize("reported", [4, 20])  # examples of the client that the sum is named after, or of all
def test_a_sum_of_clients_is_a_batch_of_all(reported: int) -> None:
    view, truth = server_view(5, 4)
    summed = dataclasses.replace(
        view,
        pseudonyms=torch.zeros(1, dtype=torch.int64),
        example_counts=torch.tensor([reported]),
        deltas={name: value.sum(0, keepdim=True) for name, value in view.deltas.items()},
    )
    found = scores(summed, truth_of(truth["records"].flatten(0, 1)[None], truth["record_labels"].reshape(1, -1)))
    assert float(found["recovered"]) > 0.9
    assert int(found["false-certified"]) == 0


@pytest.mark.parametrize("optimizer", ["adam", "adadelta"])
def test_optimizers_that_scale_each_number_are_refused(optimizer: str) -> None:
    view, _ = server_view(1, 2, local=LocalTraining(optimizer=optimizer))  # type: ignore[arg-type]
    with pytest.raises(ViewError, match="SGD"):
        attacked(view)


def test_under_an_unknown_optimizer_nothing_is_certain() -> None:
    view, _ = server_view(2, 4, local=LocalTraining(optimizer="adam"))
    unknown = dataclasses.replace(view, algorithm=None, auxiliary={"images": pictures(2)[0]})
    assert int(attacked(unknown).count.sum()) == 0


@pytest.mark.parametrize("known", [False, True])
def test_records_off_the_grid_of_pixels_are_refused_without_an_algorithm_not_missed(known: bool) -> None:
    images, labels = pictures(8)
    standardised = (images - images.mean()) / images.std()
    view, _ = server_view(1, 8, pictured=(standardised, labels))
    view = dataclasses.replace(view, algorithm=None, auxiliary={"images": standardised} if known else {})
    with pytest.raises(ViewError, match="grid"):
        LinearInversion()(view, generator=generator_for(0, "attack"))


def test_clients_that_train_on_words_are_refused() -> None:
    with pytest.raises(ViewError, match="words"):
        LinearInversion()(seen("lstm"), generator=generator_for(0, "attack"))


def test_without_ground_truth_the_share_of_certain_records_is_reported() -> None:
    view, _ = server_view()
    assert {name: value.tolist() for name, value in scores(view, {}).items()} == {"certified": [1, 1, 1]}
    assert unfit(LinearInversion(), view, {}) is None
    assert "record_hash" in str(unfit(LinearRatio(), view, {}))


@pytest.mark.parametrize("norm", ["none", "before-activation"])
def test_a_first_layer_that_does_not_get_the_records_is_refused(norm: Literal["none", "before-activation"]) -> None:
    view, _ = server_view(1, 2, network=ClassifierOptions(hidden=8, channels=2, norm=norm))
    with pytest.raises(ViewError, match="linear"):
        attacked(view)


def test_a_batch_norm_after_the_layer_is_named_as_the_cause() -> None:
    view, _ = server_view()
    still = {**view.deltas, "body.1.bias": torch.zeros(3, 200)}
    with pytest.raises(ViewError, match="batch norm"):
        attacked(changed(view, still))


def test_in_noise_nothing_is_certain() -> None:
    view, truth = server_view()
    assert int(attacked(of_noise(view)).count.sum()) == 0
    draws = generator_for(0, "slight noise")
    slight = with_deltas(view, lambda delta: delta + 1e-4 * delta.std() * torch.randn(delta.shape, generator=draws))
    assert int(scores(slight, truth)["false-certified"].sum()) == 0


def test_the_update_of_another_client_gives_none_of_ones_own_records() -> None:
    view, truth = server_view()
    assert scores(of_others(view), truth)["recovered"].tolist() == [0, 0, 0]


def test_with_a_foreign_model_records_have_no_classes() -> None:
    """The records are in the update, whatever the model; their classes need it."""
    view, truth = server_view()
    foreign, _ = server_view(seed=1)
    found = attacked(dataclasses.replace(view, model=foreign.model))
    assert (found.labels == -1).all()
    assert int(found.score(view, truth).metrics["false-certified"].sum()) == 0


def test_the_order_of_the_neurons_changes_nothing() -> None:
    view, truth = server_view()
    order = torch.randperm(200, generator=generator_for(0, "order"))
    moved, model = (
        {name: value[..., order] if name == "output.weight" else value for name, value in part.items()}
        for part in (view.deltas, view.model)
    )
    for part in ("body.1.weight", "body.1.bias"):
        moved[part], model[part] = moved[part][:, order], model[part][order]
    found = scores(dataclasses.replace(view, deltas=moved, model=model), truth)
    assert torch.equal(found["recovered"], scores(view, truth)["recovered"])


def test_the_error_of_a_single_record_under_noise_is_the_predicted_one() -> None:
    view, truth = server_view(40, 1)
    found = scores(with_noise(view, 1e-4, clip=1.0), truth)
    assert int(found["certified"].sum()) == 0
    assert float((found["psnr"] - found["predicted-psnr"]).mean().abs()) < 0.4


def test_of_several_records_under_noise_nothing_is_returned() -> None:
    view, _ = server_view(2, 3)
    assert attacked(with_noise(view, 0.01, clip=1.0)).count.tolist() == [0, 0]


def test_declared_noise_that_is_not_there_hides_nothing() -> None:
    view, truth = server_view(2, 3)
    release = Release(parameters=tuple(view.deltas), clip=1.0, noise_scale=0.01)
    found = scores(dataclasses.replace(view, releases=(release,)), truth)
    assert torch.equal(found["recovered"], scores(view, truth)["recovered"])
    assert float(found["recovered"].min()) > 0


@pytest.mark.parametrize("known", [True, False])
def test_a_mixture_of_images_of_few_grey_levels_is_on_the_grid_but_not_certain(known: bool) -> None:
    """A neuron that two such images excite with weights 3:1 gives an image that neither client nor attack has seen."""
    images, labels = pictures(8)
    images = (images * 3).round() * 64 / 255  # levels 0, 64, 128, 192: a quarter of a difference is whole
    kind = LocalTraining(optimizer="sgd", learning_rate=0.1, epochs=1 if known else 2)
    view, _ = server_view(clients=1, local=kind, pictured=(images, labels))
    weight, bias = (view.deltas[f"body.1.{part}"].clone() for part in ("weight", "bias"))
    mixture = 0.75 * images[0] + 0.25 * images[1]
    weight[0, 0], bias[0, 0] = mixture.flatten() * bias.abs().max(), bias.abs().max()
    estimate = attacked(changed(view, {**view.deltas, "body.1.weight": weight, "body.1.bias": bias}))
    found = (estimate.records[0] - mixture.reshape(SHAPE)).flatten(1).abs().amax(1) < 1e-3
    assert found.any()
    assert not estimate.certified[0, : len(found)][found].any()
