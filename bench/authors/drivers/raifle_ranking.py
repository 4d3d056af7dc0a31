"""RAIFLE's code for ranking: the loop of its notebook over users, without a defence."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from bench.authors.drivers.sources import SOURCES, authors_modules, notebook_function
from bench.authors.host import Arrays

LEARNING_RATE = 0.1


def prepare(inputs: Arrays) -> Callable[[], Arrays]:
    """A list is features in displayed order and the remapped ranking, as the notebook makes them."""
    folder = SOURCES / "code"
    attack, rankers = authors_modules(folder, "attack", "ranker")
    train = notebook_function(folder / "experiment_ltr.ipynb", "train", {"local_lr": LEARNING_RATE})
    served, lists, seed = inputs["served"], inputs["lists"], int(inputs["seed"])
    names = ["ranker.weight"] if "model/ranker.weight" in inputs else ["hidden.weight", "output.weight"]
    if len(names) == 1:
        ranker = rankers.LinearPDGDRanker(inputs["features"].shape[2])
    else:
        ranker = rankers.Neural1LayerPDGDRanker(inputs["features"].shape[2], inputs["model/output.weight"].shape[1])

    def flat(kind: str, victim: int) -> torch.Tensor:
        return torch.cat([torch.from_numpy(inputs[f"{kind}/{name}"][victim]).flatten() for name in names])

    def run() -> Arrays:
        scores = np.zeros(served.shape, np.float32)
        for victim in range(len(served)):
            parameters, target = flat("model", victim), flat("deltas", victim)
            shown, places = [], []
            for number in range(int(lists[victim].max()) + 1):
                place = np.flatnonzero(lists[victim] == number)
                ranking = torch.from_numpy(served[victim, place])
                _, ranking = torch.where(torch.sort(ranking)[0].unsqueeze(1) == ranking.unsqueeze(0))
                shown.append((torch.from_numpy(inputs["features"][victim, place]), ranking))
                places.append(place)
            ends = np.cumsum([len(place) for place in places]).tolist()

            def simulate(clicks: torch.Tensor, shown: Any = shown, ends: Any = ends, start: Any = parameters) -> Any:
                parts = torch.tensor_split(clicks, ends[:-1])
                data = [(*one, own) for one, own in zip(shown, parts, strict=True)]
                return train(ranker, start, data, LEARNING_RATE) / LEARNING_RATE

            torch.manual_seed(seed)
            torch.rand(victim * served.shape[1])
            found, _ = attack.reconstruct_interactions(
                simulate,
                target / LEARNING_RATE,
                ends[-1],
                lr=0.1,
                max_iter=int(inputs["iterations"]),
                num_rounds=1,
                return_raw=True,
            )
            scores[victim, np.concatenate(places)] = found.numpy()
        return {"scores": scores}

    return run
