"""The engine against a slow reference, and its two ways against each other."""

import dataclasses

import pytest
import torch
from torch import Tensor, nn

from fedleak.client.cohort import Cohort
from fedleak.client.engine.batches import batch_schedule
from fedleak.client.engine.fast.gradients import Parameters
from fedleak.client.engine.local_hyperparameters import Engine, LocalTraining
from fedleak.client.engine.local_training import train_clients
from fedleak.client.engine.task import Task
from fedleak.client.fncf import FNCFAlgorithm
from fedleak.client.nets.ncf import ncf_mlp
from fedleak.client.network import ModuleAlgorithm
from fedleak.client.recommendation import USER_EMBEDDING
from fedleak.core.errors import InputError
from fedleak.core.seeding import generator_for
from fedleak.core.view import ITEM_EMBEDDING
from fedleak.defenses.base import Defense
from fedleak.defenses.update_l1 import UpdateL1

SIZES = [7, 3, 12, 5, 1]
OPTIMIZERS = [
    LocalTraining(optimizer="sgd", learning_rate=0.1, momentum=0.9, epochs=3),
    LocalTraining(optimizer="adam", learning_rate=0.01, epochs=3, eps=1e-5),
    LocalTraining(optimizer="adadelta", learning_rate=1.0, epochs=3, eps=1e-4),
]
Problem = tuple[Task, dict[str, Tensor], dict[str, Tensor], Cohort]


def image_problem() -> Problem:
    network = nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(4 * 9, 3)
    )
    generator = generator_for(0, "test-images")
    parameters = {n: torch.randn(v.shape, generator=generator) * 0.3 for n, v in network.named_parameters()}
    width = max(SIZES)
    mask = torch.arange(width) < torch.tensor(SIZES)[:, None]
    examples = {
        "image": torch.randn(len(SIZES), width, 2, 6, 6, generator=generator),
        "label": torch.randint(3, (len(SIZES), width), generator=generator),
    }
    cohort = Cohort(0, torch.arange(len(SIZES)), examples, mask)
    return ModuleAlgorithm(local=LocalTraining(), module=network), parameters, {}, cohort


def interaction_problem() -> Problem:
    generator = generator_for(0, "test-interactions")
    table = {ITEM_EMBEDDING: torch.randn(20, 4, generator=generator)}
    layers = {f"mlp.{name}": value for name, value in ncf_mlp(4, 4, (8, 6)).named_parameters()}
    public = table | {n: torch.randn(v.shape, generator=generator) * 0.5 for n, v in layers.items()}
    rows = torch.full((len(SIZES), max(SIZES)), -1)
    for client, size in enumerate(SIZES):
        rows[client, :size] = torch.randperm(20, generator=generator)[:size].sort().values
    labels = (torch.rand(rows.shape, generator=generator) < 0.4).float()
    cohort = Cohort(0, torch.arange(len(SIZES)), {"label": labels}, rows >= 0, {ITEM_EMBEDDING: rows})
    private = {USER_EMBEDDING: torch.randn(len(SIZES), 4, generator=generator)}
    return FNCFAlgorithm(user_dim=1, local=LocalTraining()), public, private, cohort


PROBLEMS = {"images": image_problem, "interactions": interaction_problem}


def plain_optimizer(local: LocalTraining, leaves: list[Tensor]) -> torch.optim.Optimizer:
    if local.optimizer == "sgd":
        return torch.optim.SGD(leaves, lr=local.learning_rate, momentum=local.momentum, foreach=False)
    if local.optimizer == "adam":
        return torch.optim.Adam(leaves, lr=local.learning_rate, eps=local.eps, foreach=False)
    return torch.optim.Adadelta(leaves, lr=local.learning_rate, rho=local.rho, eps=local.eps, foreach=False)


def reference(problem: Problem, client: int, local: LocalTraining) -> dict[str, Tensor]:
    """One client, whole tables, nothing padded."""
    task, public, private, cohort = problem
    size = int(cohort.counts[client])
    leaves = {n: v.clone().requires_grad_() for n, v in public.items()}
    own = {n: v[client].clone().requires_grad_() for n, v in private.items()}
    optimizer = plain_optimizer(local, [*leaves.values(), *own.values()])
    schedule = batch_schedule(cohort, local, seed=0)[client]
    for step in schedule if local.batch_size else [torch.arange(size)] * local.epochs:
        index = step[step >= 0]
        seen = {n: v[cohort.rows[n][client, index]] if n in cohort.rows else v for n, v in leaves.items()}
        examples = {n: v[client, index] for n, v in cohort.examples.items()}
        loss = task.loss({**seen, **own}, examples, torch.ones(len(index), dtype=torch.bool))
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return {n: leaves[n].detach() - v for n, v in public.items()}


@pytest.mark.parametrize("engine", ["vectorized", "sequential"])
@pytest.mark.parametrize("batch_size", [None, 4])
@pytest.mark.parametrize("local", OPTIMIZERS, ids=lambda local: local.optimizer)
@pytest.mark.parametrize("name", PROBLEMS)
def test_engine_equals_a_plain_loop(name: str, local: LocalTraining, batch_size: int | None, engine: str) -> None:
    problem = PROBLEMS[name]()
    task, public, private, cohort = problem
    local = dataclasses.replace(local, batch_size=batch_size, engine=engine, clients_per_chunk=2)  # type: ignore[arg-type]
    result = train_clients(task, public, private, cohort, local, seed=0)
    for client, size in enumerate(SIZES):
        expected = reference(problem, client, local)
        for parameter, delta in expected.items():
            ours = result.deltas[parameter][client]
            if parameter in cohort.rows:
                assert torch.equal(ours[size:], torch.zeros_like(ours[size:]))
                whole = torch.zeros_like(delta)
                whole[cohort.rows[parameter][client, :size]] = ours[:size]
                ours = whole
            assert delta.abs().max() > 1e-4
            torch.testing.assert_close(ours, delta, atol=1e-5, rtol=0)


@pytest.mark.parametrize("local", OPTIMIZERS, ids=lambda local: local.optimizer)
@pytest.mark.parametrize("name", PROBLEMS)
def test_the_two_ways_agree(name: str, local: LocalTraining) -> None:
    task, public, private, cohort = PROBLEMS[name]()
    defenses: list[Defense] = [UpdateL1(strength=1.0)] if name == "interactions" else []
    results = [
        train_clients(task, public, private, cohort, dataclasses.replace(local, engine=e), seed=0, defenses=defenses)
        for e in ("vectorized", "sequential")
    ]
    for parameter in public:
        torch.testing.assert_close(results[0].deltas[parameter], results[1].deltas[parameter], atol=1e-5, rtol=0)
    for parameter in private:
        assert not torch.equal(results[0].private[parameter], private[parameter])
        torch.testing.assert_close(results[0].private[parameter], results[1].private[parameter], atol=1e-5, rtol=0)
    torch.testing.assert_close(results[0].losses, results[1].losses, atol=1e-5, rtol=0)


@pytest.mark.parametrize("engine", ["vectorized", "sequential"])
def test_the_mean_penalty_is_over_a_clients_own_rows_whatever_the_catalogue(engine: Engine) -> None:
    """More items in the catalogue, or company with more rows, change nothing; the penalty is that of a plain loop."""
    task, public, private, cohort = interaction_problem()
    # The penalty's gradient is zero in the first step, where nothing has changed yet.
    local = LocalTraining(learning_rate=0.05, epochs=3, engine=engine)
    table = public[ITEM_EMBEDDING]
    larger = {**public, ITEM_EMBEDDING: torch.cat([table, torch.zeros(500, table.shape[1])])}

    def deltas(defense: UpdateL1, model: Parameters) -> Tensor:
        return train_clients(task, model, private, cohort, local, seed=0, defenses=[defense]).deltas[ITEM_EMBEDDING]

    mean = deltas(UpdateL1(strength=1.0), public)
    torch.testing.assert_close(deltas(UpdateL1(strength=1.0), larger), mean)
    for client, size in enumerate(SIZES):
        own = UpdateL1(strength=1 / (size * table.shape[1]), reduction="sum")
        torch.testing.assert_close(deltas(own, public)[client], mean[client])
    assert not torch.allclose(deltas(UpdateL1(strength=0.0), public), mean)


def test_a_client_trains_the_same_in_any_company() -> None:
    task, public, private, cohort = interaction_problem()
    local = dataclasses.replace(OPTIMIZERS[1], batch_size=4)
    together = train_clients(task, public, private, cohort, local, seed=0)
    alone = cohort.select(torch.tensor([2]))
    apart = train_clients(task, public, {n: v[2:3] for n, v in private.items()}, alone, local, seed=0)
    for parameter in public:
        torch.testing.assert_close(apart.deltas[parameter][0], together.deltas[parameter][2], atol=1e-6, rtol=0)


def test_the_number_of_threads_is_given_back() -> None:
    before = torch.get_num_threads()
    task, public, private, cohort = interaction_problem()
    train_clients(task, public, private, cohort, LocalTraining(threads=2, clients_per_chunk=1), seed=0)
    assert torch.get_num_threads() == before


@pytest.mark.parametrize("name", ["learning_rate", "epochs", "batch_size", "threads"])
def test_impossible_values_are_refused(name: str) -> None:
    with pytest.raises(InputError, match=name):
        LocalTraining(**{name: 0})  # type: ignore[arg-type]
