"""Inverting gradients: images by signed Adam, from the same starting points."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional

from bench.authors.contest import Comparison, Contest
from bench.authors.host import Arrays, part
from bench.authors.image_network import CLASSES, SHAPE, image_network
from fedleak.attacks.reconstruction.gradient_matching import InvertingGradients, MatchedImages
from fedleak.client.engine.local_hyperparameters import LocalTraining
from fedleak.client.network import ModuleClassifier
from fedleak.core.view import RoundView


class MatchedGradients(Contest):
    """Eight clients with one smooth generated image of CIFAR's shape, 1,000 of the paper's 24,000 iterations."""

    name = "inverting-gradients"
    paper = "Inverting Gradients, equation 4"
    authors = "breaching"
    theirs = "bench.authors.drivers.inverting_gradients"
    repeats = 3

    def write(self) -> tuple[Arrays, Arrays]:
        victims, generator = 8, torch.Generator().manual_seed(7)
        network = image_network()
        with torch.no_grad():
            for value in network.parameters():
                bound = value[0].numel() ** -0.5 if value.dim() > 1 else 0.05
                value.uniform_(-bound, bound, generator=generator)
        coarse = torch.rand(victims, SHAPE[0], 6, 6, generator=generator)
        images = functional.interpolate(coarse, SHAPE[1:], mode="bicubic", align_corners=True).clamp(0, 1)
        labels = torch.randint(CLASSES, (victims,), generator=generator)
        names = [name for name, _ in network.named_parameters()]
        gradients = [
            torch.autograd.grad(functional.cross_entropy(network(own[None]), label[None]), list(network.parameters()))
            for own, label in zip(images, labels, strict=True)
        ]
        stacked = {
            name: torch.stack(values).numpy() for name, values in zip(names, zip(*gradients, strict=True), strict=True)
        }
        inputs = {
            **{f"model/{name}": value.detach().numpy() for name, value in network.named_parameters()},
            **{f"gradient/{name}": value for name, value in stacked.items()},
            "victims": np.array(victims),
            "iterations": np.array(1000),
            "seed": np.array(7),
        }
        return inputs, {"images": images.numpy(), "labels": labels.numpy()}

    def compare(self, truth: Arrays, ours: Arrays, theirs: Arrays) -> list[Comparison]:
        right = [float((side["labels"] == truth["labels"]).mean()) for side in (ours, theirs)]
        quality = [float(_psnr(side["images"], truth["images"]).mean()) for side in (ours, theirs)]
        return [Comparison("labels", right[0], right[1], 0.0), Comparison("PSNR in dB", quality[0], quality[1], 0.5)]


def prepare(inputs: Arrays) -> Callable[[], Arrays]:
    """The starting points are the first normal numbers of the seed."""
    victims = int(inputs["victims"])
    attack = InvertingGradients(max_iter=int(inputs["iterations"]), minutes=1e6, accelerator="cpu")
    view = RoundView(
        round=0,
        pseudonyms=torch.arange(victims),
        example_counts=torch.ones(victims, dtype=torch.int64),
        deltas={name: -torch.from_numpy(value) for name, value in part(inputs, "gradient").items()},
        model={name: torch.from_numpy(value) for name, value in part(inputs, "model").items()},
        algorithm=ModuleClassifier(local=LocalTraining(learning_rate=1.0), module=image_network()),
        auxiliary={"images": torch.zeros(1, *SHAPE)},
    )

    def run() -> Arrays:
        estimate = attack(view, generator=torch.Generator().manual_seed(int(inputs["seed"])))
        assert isinstance(estimate, MatchedImages)
        return {"images": estimate.records[:, 0].numpy(), "labels": estimate.labels[:, 0].numpy()}

    return run


def _psnr(found: NDArray[Any], true: NDArray[Any]) -> NDArray[Any]:
    """``(V,)`` of images in [0, 1]."""
    quality: NDArray[Any] = -10 * np.log10(np.square(found - true).mean((1, 2, 3)))
    return quality
