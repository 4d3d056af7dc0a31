"""Local training: our engine against a plain loop over clients."""

import copy

import torch
from torch import nn
from torch.nn import functional

from attacks.base import ITEM_EMBEDDING
from bench.measure import Measure, interleaved
from datamodules.cohort import Cohort
from datamodules.keys import generator_for
from modules.classification import ClassificationTask
from modules.local_optimizers import LocalTraining
from modules.local_training import LocalResult, train_clients
from modules.nets.ncf import ncf_mlp
from modules.recommendation import USER_EMBEDDING, InteractionTask


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
    last: list[LocalResult] = []

    def ours() -> None:
        # As the round does it: the memory of the round before is used again.
        last[:] = [train_clients(task, public, {}, cohort, local, seed=0, spent=last[0] if last else None)]

    times = interleaved({"plain loop": plain, "ours": ours}, repeats)
    return [Measure("J2", name, value) for name, value in times.items()]


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
    return [Measure("J3", name, value) for name, value in times.items()]


def check_equal(ours: dict[str, torch.Tensor], plain: dict[str, torch.Tensor]) -> None:
    """Both must have trained the same thing."""
    for name, value in plain.items():
        gap = (ours[name] - value).norm() / value.norm()
        if gap > 1e-3:
            raise SystemExit(f"the engines disagree on {name}: {gap:.1e} of its movement")
