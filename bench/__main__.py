"""``make bench``: our engine against a plain loop, closed form against gradient matching, recording on against off."""

import argparse
import copy
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import torch
from lightning import Trainer
from torch import nn
from torch.nn import functional
from tqdm import tqdm

from attacks.base import ITEM_EMBEDDING, InteractionEstimate, ServerView
from attacks.interactions.direction import Direction
from attacks.metrics import auc_per_victim
from callbacks.delta_recorder import DeltaRecorder
from datamodules.cohort import Cohort
from datamodules.keys import generator_for
from datamodules.synthetic import SyntheticRecommender
from modules.classification import ClassificationTask
from modules.fncf import FNCF
from modules.fncf_learner import FNCFLearner
from modules.local_optimizers import LocalTraining
from modules.local_training import train_clients
from modules.nets.ncf import ncf_mlp
from modules.raifle import Raifle
from modules.recommendation import USER_EMBEDDING, InteractionTask
from reports.provenance import hardware, versions

OUT = Path("bench/out")
Measure = tuple[str, str, float]


def interleaved(pieces: dict[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """Median seconds of each piece, in turns, so that a busy machine disturbs all alike."""
    seconds: dict[str, list[float]] = {name: [] for name in pieces}
    for turn in tqdm(range(repeats + 1), desc=" / ".join(pieces), unit="turn"):
        for name, piece in pieces.items():
            start = time.perf_counter()
            piece()
            if turn:
                seconds[name].append(time.perf_counter() - start)
    return {name: statistics.median(values) for name, values in seconds.items()}


def check_equal(ours: dict[str, torch.Tensor], plain: dict[str, torch.Tensor]) -> None:
    """Both must have trained the same thing."""
    for name, value in plain.items():
        gap = (ours[name] - value).norm() / value.norm()
        if gap > 1e-3:
            raise SystemExit(f"the engines disagree on {name}: {gap:.1e} of its movement")


def job_j2(repeats: int) -> list[Measure]:
    """100 clients of 50 colour images, batch 10, one epoch of SGD on a small CNN."""
    network = nn.Sequential(
        *(nn.Conv2d(3, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()),
        *(nn.Linear(64 * 14 * 14, 128), nn.ReLU(), nn.Linear(128, 10)),
    )
    generator = generator_for(0, "bench-j2")
    images = torch.randn(100, 50, 3, 32, 32, generator=generator)
    labels = torch.randint(10, (100, 50), generator=generator)
    cohort = Cohort(0, torch.arange(100), {"image": images, "label": labels}, torch.ones(100, 50, dtype=torch.bool))
    public = {name: value.detach() for name, value in network.named_parameters()}
    local = LocalTraining(learning_rate=0.01, batch_size=10)
    order = torch.randperm(50, generator=generator)

    def plain() -> None:
        for client in range(100):
            model = copy.deepcopy(network)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
            for batch in torch.split(order, 10):
                optimizer.zero_grad()
                functional.cross_entropy(model(images[client, batch]), labels[client, batch]).backward()  # type: ignore[no-untyped-call]
                optimizer.step()

    task = ClassificationTask(network)
    times = interleaved(
        {"plain loop": plain, "ours": lambda: train_clients(task, public, {}, cohort, local, seed=0)}, repeats
    )
    return [("J2", name, value) for name, value in times.items()]


def job_j3(repeats: int) -> list[Measure]:
    """943 clients of 530 items, private vectors, Adam, 20 full-batch epochs of the collaborative-filtering network."""
    generator = generator_for(0, "bench-j3")
    items = torch.stack([torch.randperm(1682, generator=generator)[:530].sort().values for _ in range(943)])
    labels = (torch.rand(943, 530, generator=generator) < 0.2).float()
    users = torch.randn(943, 64, generator=generator)
    module = nn.ModuleDict({"item_embedding": nn.Embedding(1682, 64), "mlp": ncf_mlp(64, 64, (64, 32))})
    public = {name: value.detach() for name, value in module.named_parameters()}
    cohort = Cohort(0, torch.arange(943), {"label": labels}, items >= 0, {ITEM_EMBEDDING: items})
    local = LocalTraining(optimizer="adam", learning_rate=1e-3, epochs=20)
    first: dict[str, torch.Tensor] = {}

    def plain() -> None:
        for client in range(943):
            model, user = copy.deepcopy(module), nn.Parameter(users[client].clone())
            optimizer = torch.optim.Adam([*model.parameters(), user], lr=1e-3)
            for _ in range(20):
                optimizer.zero_grad()
                rows = model["item_embedding"](items[client])
                logits = model["mlp"](torch.cat([user.expand(530, -1), rows], dim=1)).squeeze(1)
                functional.binary_cross_entropy_with_logits(logits, labels[client]).backward()  # type: ignore[no-untyped-call]
                optimizer.step()
            if client == 0:
                after = dict(model.named_parameters())
                first.update({n: after[n].detach() - v for n, v in public.items() if n != ITEM_EMBEDDING})

    result: dict[str, torch.Tensor] = {}

    def ours() -> None:
        deltas = train_clients(InteractionTask(), public, {USER_EMBEDDING: users}, cohort, local, seed=0).deltas
        result.update({name: value[0] for name, value in deltas.items()})

    times = interleaved({"plain loop": plain, "ours": ours}, repeats)
    check_equal(result, first)
    return [("J3", name, value) for name, value in times.items()]


def attack_times(victims: int) -> list[Measure]:
    """Closed form against gradient matching, seconds per victim, on generated users of MovieLens' shape."""
    source = SyntheticRecommender(holdout=False)
    module = FNCF(num_items=source.num_items, num_clients=source.num_clients)
    cohort = source.build_cohort(0, source.participants(0)[:victims])
    learner = FNCFLearner(user_dim=64, local=module.local)
    users = module.private[USER_EMBEDDING][cohort.clients]
    served = cohort.rows[ITEM_EMBEDDING]
    deltas = learner.simulate(module.public_parameters(), served, cohort.examples["label"], users)
    view = ServerView(
        round=0,
        pseudonyms=cohort.clients,
        example_counts=cohort.counts,
        deltas={ITEM_EMBEDDING: deltas[ITEM_EMBEDDING]},
        model=module.public_parameters(),
        row_parameters=frozenset([ITEM_EMBEDDING]),
        served=served,
        learner=learner,
    )
    measures = []
    for attack in (Direction(), Raifle(max_iter=40)):
        start = time.perf_counter()
        estimate = attack(view, generator=generator_for(0, "bench-attack"))
        seconds = (time.perf_counter() - start) / victims
        if not isinstance(estimate, InteractionEstimate):
            raise SystemExit(f"{attack.name} gave no interactions")
        auc = float(auc_per_victim(estimate.scores, cohort.examples["label"], cohort.mask).nanmean())
        measures.append(("attack per victim", f"{attack.name} (AUC {auc:.3f})", seconds))
    return measures[::-1]


def recording_times(repeats: int) -> list[Measure]:
    """A round of 200 clients with and without the recorder."""

    def train(record: bool) -> None:
        with tempfile.TemporaryDirectory() as folder:
            source = SyntheticRecommender(clients_per_round=200)
            Trainer(
                max_steps=3,
                accelerator="cpu",
                logger=False,
                enable_checkpointing=False,
                enable_progress_bar=False,
                enable_model_summary=False,
                limit_val_batches=0,
                default_root_dir=folder,
                callbacks=[DeltaRecorder()] if record else [],
            ).fit(FNCF(num_items=source.num_items, num_clients=source.num_clients), datamodule=source)

    times = interleaved({"recording on": lambda: train(True), "recording off": lambda: train(False)}, repeats)
    return [("3 rounds", name, value) for name, value in times.items()]


def main() -> None:
    """Measures, prints the ratios, writes a CSV."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", nargs="+", default=["J2", "J3", "attack", "recording"])
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    jobs: dict[str, Callable[[], list[Measure]]] = {
        "J2": lambda: job_j2(options.repeats),
        "J3": lambda: job_j3(options.repeats),
        "attack": lambda: attack_times(8),
        "recording": lambda: recording_times(options.repeats),
    }
    rows = []
    for name in options.jobs:
        measures = jobs[name]()
        base = measures[0][2]
        rows += [
            {
                "job": job,
                "what": what,
                "seconds": seconds,
                "ratio": base / seconds,
                "hardware": hardware(),
                **versions(),
            }
            for job, what, seconds in measures
        ]
    frame = pd.DataFrame(rows)
    OUT.mkdir(parents=True, exist_ok=True)
    frame.to_csv(OUT / "bench.csv", index=False)
    print(frame[["job", "what", "seconds", "ratio"]].to_string(index=False))


if __name__ == "__main__":
    main()
