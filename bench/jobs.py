"""The jobs: generated data with the shapes of real data, written once for all simulators."""

from pathlib import Path

import numpy as np
import torch

from bench.peers.networks import ImageNetwork, InteractionNetwork, weights_of
from bench.peers.protocol import Array, Plan, save_job
from fedleak.client.cohort import Cohort
from fedleak.client.engine.batches import batch_schedule
from fedleak.client.engine.local_hyperparameters import LocalTraining
from fedleak.core.seeding import generator_for

ROUNDS = 12
"""Rounds with different cohorts; later rounds repeat them."""
_ITEMS, _DIM = 1682, 64


def write_job(name: str, folder: Path) -> None:
    """Writes one of the jobs.

    Args:
        name: ``J1`` (FEMNIST's shape: 100 clients of 300, each 20 grey images of 28 x 28, 62 classes, one step of SGD),
            ``J2`` (CIFAR-10's: 100 of 300, each 50 colour images of 32 x 32, 10 classes, five steps of SGD), ``J3``
            (MovieLens-100K's: all 943, each 530 items, 20 full-batch epochs of Adam) or ``J3r`` (the same with 100 to
            1,650 items).
        folder: where to.
    """
    {
        "J1": lambda: _images(folder, "J1", images=20, shape=(1, 28, 28), classes=62, batch=20),
        "J2": lambda: _images(folder, "J2", images=50, shape=(3, 32, 32), classes=10, batch=10),
        "J3": lambda: _interactions(folder, "J3", np.full(943, 530)),
        "J3r": lambda: _interactions(folder, "J3r", _ragged_sizes()),
    }[name]()


def _images(folder: Path, name: str, *, images: int, shape: tuple[int, int, int], classes: int, batch: int) -> None:
    clients, taken = 300, 100
    generator = generator_for(0, f"bench-{name}")
    cohorts = [torch.randperm(clients, generator=generator)[:taken].sort().values for _ in range(ROUNDS)]
    order = []
    for number, chosen in enumerate(cohorts):
        mask = torch.ones(taken, images, dtype=torch.bool)
        # The order in which fedleak's engine draws the mini-batches; the other simulators get the same.
        plans = batch_schedule(Cohort(number, chosen, {}, mask), LocalTraining(batch_size=batch), seed=0)
        order.append(torch.stack([plan.flatten() for plan in plans]))
    torch.manual_seed(0)
    network = ImageNetwork(shape[0], shape[1], classes)
    size = shape[1]
    forward = 2 * 9 * 32 * (shape[0] * (size - 2) ** 2 + 64 * (size - 4) ** 2)
    forward += 2 * 128 * (64 * ((size - 4) // 2) ** 2 + classes)
    first = 2 * 9 * 32 * shape[0] * (size - 2) ** 2
    # Forward, and backward by weights and by inputs; the gradient by the images is not needed.
    flops = taken * images * (3 * forward - first)
    plan = Plan(name, "images", "sgd", 0.01, 1, batch, classes, float(flops))
    arrays: dict[str, Array] = {
        "images": torch.randn(clients, images, *shape, generator=generator).numpy(),
        "labels": torch.randint(classes, (clients, images), generator=generator).numpy(),
        "counts": np.full(clients, images),
        "cohorts": torch.stack(cohorts).numpy(),
        "order": torch.stack(order).numpy(),
    }
    save_job(folder, plan, arrays, weights_of(network))


def _ragged_sizes() -> Array:
    """Items of users with 20 to 330 ratings, log-normal like MovieLens' users, with four negatives per positive."""
    positives = np.exp(np.random.default_rng(0).normal(np.log(65), 1.0, 943)).clip(20, 330).astype(np.int64)
    return 5 * positives


def _interactions(folder: Path, name: str, sizes: Array) -> None:
    clients, width = len(sizes), int(sizes.max())
    generator = generator_for(0, f"bench-{name}")
    items = np.full((clients, width), -1)
    for client, size in enumerate(sizes.tolist()):
        items[client, :size] = torch.randperm(_ITEMS, generator=generator)[:size].sort().values.numpy()
    labels = (torch.rand(clients, width, generator=generator) < 0.2).float().numpy()
    torch.manual_seed(0)
    network = InteractionNetwork(_ITEMS, _DIM, (64, 32))
    # The user's half of the first layer counts once per step, not once per pair: the least that is possible.
    per_pair, per_step = 2 * (_DIM * 64 + 64 * 32 + 32), 2 * _DIM * 64
    plan = Plan(
        name, "interactions", "adam", 1e-3, 20, None, 0, 3.0 * 20 * (per_pair * int(sizes.sum()) + per_step * clients)
    )
    arrays: dict[str, Array] = {
        "items": items,
        "labels": labels,
        "counts": sizes,
        "cohorts": np.broadcast_to(np.arange(clients), (ROUNDS, clients)),
        "users": torch.randn(clients, _DIM, generator=generator).numpy(),
    }
    save_job(folder, plan, arrays, weights_of(network))
