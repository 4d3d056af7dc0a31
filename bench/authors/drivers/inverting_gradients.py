"""Gradient matching of the package ``breaching``, as its configuration ``invertinggradients``."""

import importlib
import logging
from collections.abc import Callable
from types import SimpleNamespace

import numpy as np
import torch

from bench.authors.host import Arrays, part
from bench.authors.image_network import DEVIATION, MEAN, SHAPE, Standardised, image_network


def prepare(inputs: Arrays) -> Callable[[], Arrays]:
    """The starting points are those of fedleak's side; the label is recovered by the package."""
    breaching = importlib.import_module("breaching")
    logging.disable(logging.INFO)
    options = breaching.get_attack_config("invertinggradients")
    options.optim.max_iterations = int(inputs["iterations"])
    network, setup = image_network(), {"dtype": torch.float, "device": torch.device("cpu")}
    model = torch.nn.Sequential(Standardised(), *network)
    names = [name for name, _ in network.named_parameters()]
    weights = [torch.from_numpy(inputs[f"model/{name}"]) for name in names]
    about = SimpleNamespace(
        shape=list(SHAPE), mean=[MEAN] * SHAPE[0], std=[DEVIATION] * SHAPE[0], modality="vision", classes=10
    )
    gradients, victims = part(inputs, "gradient"), int(inputs["victims"])
    starts = torch.randn(victims, 1, *SHAPE, generator=torch.Generator().manual_seed(int(inputs["seed"])))
    loss = torch.nn.CrossEntropyLoss()

    def run() -> Arrays:
        images, labels = [], []
        for victim in range(victims):
            attacker = breaching.attacks.prepare_attack(model, loss, options, setup)
            sent = [{"parameters": weights, "buffers": [], "metadata": about}]
            received = {
                "gradients": [torch.from_numpy(gradients[name][victim]) for name in names],
                "buffers": None,
                "metadata": {"num_data_points": 1, "labels": None, "local_hyperparams": None},
            }
            found, _ = attacker.reconstruct(sent, [received], {}, initial_data=starts[victim])
            images.append((MEAN + DEVIATION * found["data"][0]).numpy())
            labels.append(int(found["labels"][0]))
        return {"images": np.stack(images), "labels": np.array(labels)}

    return run
