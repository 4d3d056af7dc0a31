"""iLRG: the number of examples of each class from the gradient of the last layer."""

from collections.abc import Callable

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from bench.authors.contest import Comparison, Contest
from bench.authors.host import Arrays, part
from fedleak.attacks.composition.counts import CountEstimate
from fedleak.attacks.composition.ilrg import ILRG
from fedleak.client.engine.local_hyperparameters import LocalTraining
from fedleak.client.network import ModuleClassifier
from fedleak.core.view import RoundView

_CLASSES, _EXAMPLES, _FEATURES = 100, 24, 84


class LabelRestoration(Contest):
    """50 clients with 24 generated examples of 100 classes, and the last layers of the paper's LeNet-5, untrained."""

    name = "ilrg"
    paper = "iLRG, section 3"
    authors = "ilrg"
    theirs = "bench.authors.drivers.ilrg"

    def write(self) -> tuple[Arrays, Arrays]:
        victims, generator = 50, torch.Generator().manual_seed(7)
        layers = _network()
        for value in layers.parameters():
            nn.init.uniform_(value, -(value.shape[-1] ** -0.5), value.shape[-1] ** -0.5, generator=generator)
        labels = torch.randint(_CLASSES, (victims, _EXAMPLES), generator=generator)
        inputs = torch.rand(victims, _EXAMPLES, 400, generator=generator)
        layer = layers[-1]
        assert isinstance(layer, nn.Linear)
        gradients = [
            torch.autograd.grad(functional.cross_entropy(layers(own), label), [layer.weight, layer.bias])
            for own, label in zip(inputs, labels, strict=True)
        ]
        weight, bias = (torch.stack(each) for each in zip(*gradients, strict=True))
        counts = functional.one_hot(labels, _CLASSES).sum(1)
        arrays = {
            "model/weight": layer.weight.detach().numpy(),
            "model/bias": layer.bias.detach().numpy(),
            "gradient/weight": weight.numpy(),
            "gradient/bias": bias.numpy(),
            "examples": np.array(_EXAMPLES),
            "victims": np.array(victims),
        }
        return arrays, {"counts": counts.numpy()}

    def compare(self, truth: Arrays, ours: Arrays, theirs: Arrays) -> list[Comparison]:
        exact = [float((side["counts"] == truth["counts"]).mean()) for side in (ours, theirs)]
        same = float((ours["counts"] == theirs["counts"]).mean())
        return [
            Comparison("share of classes counted right", exact[0], exact[1], 0.005),
            Comparison("share of equal counts", same, 1.0, 0.005),
        ]


def prepare(inputs: Arrays) -> Callable[[], Arrays]:
    """A step of SGD with learning rate 1 changes the layer by minus its gradient."""
    victims = int(inputs["victims"])
    network = _network()
    model = {name: value.detach() for name, value in network.state_dict().items()}
    name = f"{len(network) - 1}"
    model |= {f"{name}.{own}": torch.from_numpy(value) for own, value in part(inputs, "model").items()}
    view = RoundView(
        round=0,
        pseudonyms=torch.arange(victims),
        example_counts=torch.full((victims,), int(inputs["examples"])),
        deltas={f"{name}.{own}": -torch.from_numpy(value) for own, value in part(inputs, "gradient").items()},
        model=model,
        algorithm=ModuleClassifier(local=LocalTraining(learning_rate=1.0), module=network),
    )

    def run() -> Arrays:
        estimate = ILRG()(view, generator=torch.Generator())
        assert isinstance(estimate, CountEstimate)
        return {"counts": estimate.counts.numpy()}

    return run


def _network() -> nn.Sequential:
    """The linear layers of LeNet-5 for colour images."""
    return nn.Sequential(
        nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, _FEATURES), nn.ReLU(), nn.Linear(_FEATURES, _CLASSES)
    )
