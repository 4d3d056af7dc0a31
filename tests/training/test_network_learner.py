"""Any network as a learner: what a user writes is the network and its loss."""

import functools
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from fedleak.attacks.composition.base import network_outputs
from fedleak.callbacks.delta_recorder import DeltaRecorder
from fedleak.client.engine.local_hyperparameters import LocalTraining
from fedleak.client.network import ClassifierAlgorithm, ModuleAlgorithm
from fedleak.core.errors import InputError
from fedleak.core.seeding import generator_for
from fedleak.datamodules.images.digits import Digits
from fedleak.datamodules.partition.client_split import ClientSplit
from fedleak.defenses.base import Defense
from fedleak.defenses.update_l1 import UpdateL1
from fedleak.recordings.named_algorithm import network_of
from fedleak.recordings.recorded_learner import recorded_learner
from fedleak.recordings.recording import Recording
from fedleak.training.network_learner import NetworkLearner
from tests.toys import quiet_trainer

LOCAL = LocalTraining(learning_rate=0.1, epochs=2)


class Small(NetworkLearner):
    def __init__(self, *, num_classes: int | None = None, local: LocalTraining = LOCAL, **federation: Any) -> None:
        super().__init__(local=local, **federation)
        self.build_with(num_classes=num_classes)

    def build(self, num_classes: int) -> None:
        hidden = nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.GELU())
        self.train_network(nn.Sequential(hidden, nn.LayerNorm(16), nn.Linear(16, num_classes)))


def digits() -> Digits:
    split = ClientSplit(scheme="composition", composition="MNIST", examples_per_client=24)
    return Digits(split=split, auxiliary_per_class=4)


@pytest.mark.integration
def test_a_recording_names_it_and_its_clients_are_simulated_exactly(tmp_path: Path) -> None:
    data, module = digits(), Small()
    quiet_trainer(1, tmp_path, DeltaRecorder(directory=str(tmp_path / "deltas"))).fit(module, datamodule=data)
    recording = Recording(tmp_path / "deltas")
    assert recording.manifest.learner is not None
    assert recording.manifest.learner["name"] == f"{__name__}.Small"
    simulator = recorded_learner(recording)
    assert isinstance(simulator, ClassifierAlgorithm)
    view = next(recording.views(victims_per_view=1000, learner=simulator))
    cohort = data.cohort(0)
    clients, width = cohort.mask.shape
    held = torch.arange(clients * width).reshape(clients, width).where(cohort.mask, -1)
    pool, labels = cohort.examples["image"].flatten(0, 1), cohort.examples["label"].flatten()
    own = simulator.simulate_examples(view.model, pool, labels, held, generator=generator_for(0, "order"))
    name = "network.0.1.weight"
    found, sent = (deltas[name].flatten(1).norm(dim=1).sort().values for deltas in (own, view.deltas))
    torch.testing.assert_close(found, sent)


def test_a_penalty_that_no_simulator_replays_is_not_described() -> None:
    class Other(UpdateL1):
        pass

    class Pull(Defense):
        def penalty(self, *_: Any) -> None:
            return None

    penalty = UpdateL1(strength=1.0, parameters=[])
    described = [Small(num_classes=10, defenses=d).learner_description() for d in ([], [penalty], [Pull()])]
    assert [one is None for one in described] == [False, False, True]
    assert Small(num_classes=10, defenses=[penalty, Other(strength=1.0)]).learner_description() is None


def test_outputs_are_the_networks_and_features_enter_its_last_layer() -> None:
    module = Small(num_classes=10)
    simulator = module.algorithm
    assert isinstance(simulator, ClassifierAlgorithm)
    images = torch.rand(5, 1, 8, 8, generator=generator_for(0, "images"))
    models = {name: torch.stack([value, 2 * value]) for name, value in module.public_parameters().items()}
    features, logits = network_outputs(simulator, models, images)
    torch.testing.assert_close(logits[0], module(images).detach())
    weight, bias = models[f"{simulator.output_layer}.weight"], models[f"{simulator.output_layer}.bias"]
    torch.testing.assert_close(logits, features @ weight.mT + bias[:, None])


def test_the_model_of_another_network_is_not_its_own() -> None:
    learner = Small(num_classes=10)
    shapes = {name: tuple(value.shape) for name, value in learner.public_parameters().items()}
    assert network_of(learner.algorithm, shapes) == shapes
    assert network_of(learner.algorithm, {**shapes, "network.2.bias": (11,)}) == shapes


def test_equal_seeds_draw_equal_weights_whatever_was_drawn_before() -> None:
    torch.manual_seed(1)
    first = Small(num_classes=10).public_parameters()
    torch.rand(3)
    second, other = Small(num_classes=10).public_parameters(), Small(num_classes=10, seed=1).public_parameters()
    name = "network.0.1.weight"
    assert torch.equal(first[name], second[name])
    assert not torch.equal(first[name], other[name])


def test_another_loss_is_simulated_but_classifies_nothing() -> None:
    class Regression(Small):
        def build(self, num_classes: int) -> None:
            self.train_network(nn.Sequential(nn.Flatten(), nn.Linear(64, num_classes)), functional.mse_loss)

    simulator = Regression(num_classes=2).algorithm
    assert type(simulator) is ModuleAlgorithm
    features, labels = torch.rand(6, 1, 8, 8), torch.rand(6, 2)
    held = torch.tensor([[0, 1, 2], [3, 4, -1]])
    model = Regression(num_classes=2).public_parameters()
    found = simulator.simulate_examples(model, features, labels, held, generator=generator_for(0, "order"))
    assert found["network.1.weight"].shape == (2, 2, 64)
    assert found["network.1.weight"].abs().amax((1, 2)).min() > 0


def test_uint8_images_are_scaled() -> None:
    task = ModuleAlgorithm(local=LocalTraining(), module=nn.Flatten())
    inputs, _ = task.fields({"image": torch.tensor([[0, 255]], dtype=torch.uint8), "label": torch.zeros(1)})
    assert inputs.tolist() == [[0.0, 1.0]]


def test_a_network_without_a_linear_layer_is_refused() -> None:
    class Convolution(Small):
        build = functools.partialmethod(lambda self, num_classes: self.train_network(nn.Conv2d(1, num_classes, 8)))

    with pytest.raises(InputError, match="linear layer"):
        Convolution(num_classes=3)
