"""iLRG's code: the loop of its main program over the classes of each client, without its analysis."""

from collections.abc import Callable
from types import SimpleNamespace

import numpy as np
import torch

from bench.authors.drivers.sources import SOURCES, authors_modules
from bench.authors.host import Arrays


def prepare(inputs: Arrays) -> Callable[[], Arrays]:
    methods, utils = authors_modules(SOURCES, "methods", "utils")
    layer = torch.nn.Linear(*inputs["model/weight"].shape[::-1])
    with torch.no_grad():
        layer.weight.copy_(torch.from_numpy(inputs["model/weight"]))
        layer.bias.copy_(torch.from_numpy(inputs["model/bias"]))
    model, classes = SimpleNamespace(fc=layer), layer.out_features

    def run() -> Arrays:
        found = []
        for weight, bias in zip(inputs["gradient/weight"], inputs["gradient/bias"], strict=True):
            w_grad, b_grad = torch.from_numpy(weight), torch.from_numpy(bias)
            soft = [
                utils.post_process_emb(
                    embedding=methods.get_emb(w_grad[i], b_grad[i]), model=model, device="cpu", alpha=1
                )
                for i in range(classes)
            ]
            found.append(methods.iLRG(soft, b_grad, classes, int(inputs["examples"]))[0])
        return {"counts": np.stack(found)}

    return run
