"""Objectives of breaching and their gradients, on drawn networks and images."""

import functools
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedleak.client.engine.local_hyperparameters import LocalTraining
from fedleak.client.image_classifier import ImageClassifierAlgorithm
from fedleak.client.nets.classifiers import Activation, ClassifierOptions
from fedleak.modules.attackers.image_matching import Objective
from tests.places import ROOT

PATH = ROOT / "tests/golden/image_matching.npz"
_ONE_STEP = LocalTraining(optimizer="sgd", learning_rate=0.1)
_FOUR_STEPS = LocalTraining(optimizer="sgd", learning_rate=0.1, batch_size=2, epochs=2)


@dataclass(frozen=True)
class Case:
    """Setting of one stored objective."""

    objective: Objective
    activation: Activation
    total_variation: float
    local: LocalTraining
    labels: tuple[int, ...]

    @property
    def batches(self) -> Tensor:
        """``(S, n)`` numbers of the images in each step, in the fixed order of breaching."""
        if self.local.batch_size is None:
            return torch.arange(4)[None]
        return torch.arange(4).view(2, 2).repeat(self.local.epochs, 1)


CASES = (
    Case("cosine", "relu", 0.2, _ONE_STEP, (0, 1, 2, 3)),
    Case("cosine", "sigmoid", 0.0, _ONE_STEP, (1, 1, 1, 1)),
    Case("euclidean", "sigmoid", 0.0, _ONE_STEP, (0, 0, 1, 2)),
    Case("cosine", "relu", 0.2, _FOUR_STEPS, (0, 1, 2, 3)),
    Case("euclidean", "tanh", 0.0, _FOUR_STEPS, (3, 1, 3, 0)),
)


def clients(case: Case) -> ImageClassifierAlgorithm:
    """Clients of a case."""
    network = ClassifierOptions(channels=2, hidden=6, activation=case.activation)
    return ImageClassifierAlgorithm(network=network, image_shape=(3, 8, 8), num_classes=4, local=case.local)


@functools.cache
def stored(number: int) -> dict[str, Tensor]:
    """Arrays of one case."""
    with np.load(PATH, allow_pickle=False) as arrays:
        own = [name for name in arrays.files if name.startswith(f"{number}/")]
        return {name.partition("/")[2]: torch.from_numpy(arrays[name]) for name in own}
