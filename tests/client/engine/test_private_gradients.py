"""DP-SGD in local training: each example's gradient is clipped, and each step noised with the client's own key."""

import dataclasses

import pytest
import torch
from torch import Tensor, nn

from fedleak.client.cohort import Cohort
from fedleak.client.engine.batches import batch_schedule
from fedleak.client.engine.local_hyperparameters import Engine, LocalTraining
from fedleak.client.engine.local_training import train_clients
from fedleak.client.engine.private_gradients import private_gradients
from fedleak.client.fncf import FNCFAlgorithm
from fedleak.client.nets.batch_norm import BatchNorm
from fedleak.client.network import ModuleAlgorithm
from fedleak.core.errors import InputError
from fedleak.core.seeding import generator_for

SIZES = [7, 3, 5]
PRIVATE = LocalTraining(optimizer="sgd", learning_rate=0.2, batch_size=4, example_clip=0.5, noise_multiplier=0.3)


def network() -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(1, 3, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(12, 3))


def problem() -> tuple[ModuleAlgorithm, dict[str, Tensor], Cohort]:
    draw = generator_for(0, "test-images")
    task = ModuleAlgorithm(local=LocalTraining(), module=network())
    public = {n: torch.randn(v.shape, generator=draw) * 0.3 for n, v in task.template.named_parameters()}
    mask = torch.arange(max(SIZES)) < torch.tensor(SIZES)[:, None]
    examples = {
        "image": torch.randn(len(SIZES), max(SIZES), 1, 6, 6, generator=draw),
        "label": torch.randint(3, mask.shape, generator=draw),
    }
    return task, public, Cohort(0, torch.arange(len(SIZES)), examples, mask)


def by_hand(client: int, local: LocalTraining, key: int | bytes) -> dict[str, Tensor]:
    """One client, one example after the other."""
    task, public, cohort = problem()
    noise = generator_for(key, "gradient noise", 0, 0, client)
    weights = {n: v.clone() for n, v in public.items()}
    assert local.batch_size is not None
    assert local.example_clip is not None
    for batch in batch_schedule(cohort, local, seed=0)[client]:
        sums = {n: torch.zeros_like(v) for n, v in weights.items()}
        for place in batch[batch >= 0].tolist():
            leaves = {n: v.clone().requires_grad_() for n, v in weights.items()}
            one = {n: v[client, place : place + 1] for n, v in cohort.examples.items()}
            task.loss(leaves, one, torch.ones(1, dtype=torch.bool)).backward()  # type: ignore[no-untyped-call]
            grads = {n: v.grad for n, v in leaves.items() if v.grad is not None}
            norm = float(torch.cat([g.flatten() for g in grads.values()]).norm())
            for n, grad in grads.items():
                sums[n] += grad * min(1.0, local.example_clip / norm)
        for n, total in sums.items():
            noisy = total + local.example_clip * local.noise_multiplier * torch.randn(total.shape, generator=noise)
            weights[n] -= local.learning_rate * noisy / int((batch >= 0).sum())
    return {n: v - public[n] for n, v in weights.items()}


@pytest.mark.parametrize("engine", ["vectorized", "sequential"])
@pytest.mark.parametrize("multiplier", [0.0, 0.3])
def test_both_engines_equal_one_example_after_the_other(engine: Engine, multiplier: float) -> None:
    task, public, cohort = problem()
    local = dataclasses.replace(PRIVATE, engine=engine, noise_multiplier=multiplier, clients_per_chunk=2)
    found = train_clients(task, public, {}, cohort, local, seed=0, noise_key=b"secret" * 4).deltas
    for client in range(len(SIZES)):
        for name, delta in by_hand(client, local, b"secret" * 4).items():
            torch.testing.assert_close(found[name][client], delta, atol=1e-5, rtol=0)


def test_a_large_clip_without_noise_is_the_ordinary_training() -> None:
    task, public, cohort = problem()
    plain = dataclasses.replace(PRIVATE, example_clip=None, noise_multiplier=0.0)
    wide = dataclasses.replace(PRIVATE, example_clip=1e6, noise_multiplier=0.0)
    ordinary, private = (train_clients(task, public, {}, cohort, local, seed=0).deltas for local in (plain, wide))
    for name, value in ordinary.items():
        torch.testing.assert_close(value, private[name], atol=1e-5, rtol=0)


def test_the_losses_are_means_over_the_examples_of_each_client() -> None:
    task, public, cohort = problem()
    stacked = {n: v.expand(len(SIZES), *v.shape) for n, v in public.items()}
    losses, _ = private_gradients(
        *(task, stacked, cohort.examples, cohort.mask),
        dataclasses.replace(PRIVATE, noise_multiplier=0.0),
        [generator_for(0, "unused")] * len(SIZES),
    )
    for client, loss in enumerate(losses):
        own = {n: v[client] for n, v in cohort.examples.items()}
        torch.testing.assert_close(loss, task.loss(public, own, cohort.mask[client]))


def test_the_noise_depends_on_the_secret_key_and_not_on_the_seed_alone() -> None:
    task, public, cohort = problem()
    same, other, simulated = (
        train_clients(task, public, {}, cohort, PRIVATE, seed=0, noise_key=key).deltas["4.weight"]
        for key in (b"a" * 16, b"b" * 16, None)
    )
    again = train_clients(task, public, {}, cohort, PRIVATE, seed=0, noise_key=b"a" * 16).deltas["4.weight"]
    assert torch.equal(same, again)
    assert not torch.equal(same, other)
    assert not torch.equal(same, simulated)


def test_examples_that_influence_each_other_and_noise_without_a_clip_are_refused() -> None:
    _, public, cohort = problem()
    normed = ModuleAlgorithm(local=LocalTraining(), module=nn.Sequential(network(), BatchNorm(3)))
    with pytest.raises(InputError, match="BatchNorm"):
        train_clients(normed, public, {}, cohort, PRIVATE, seed=0)
    table = {"table": torch.zeros(4, 2)}
    rows = Cohort(
        0, torch.arange(1), {"label": torch.zeros(1, 2)}, torch.ones(1, 2).bool(), {"table": torch.arange(2)[None]}
    )
    with pytest.raises(InputError, match="rows"):
        train_clients(FNCFAlgorithm(user_dim=1, local=LocalTraining()), table, {}, rows, PRIVATE, seed=0)
    with pytest.raises(InputError, match="example_clip"):
        LocalTraining(noise_multiplier=1.0)
