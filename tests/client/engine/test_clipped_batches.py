"""A clip of whole batches is that of torch, of each client by itself, in both engines."""

import dataclasses
from typing import Any

import pytest
import torch

from fedleak.client.cohort import Cohort
from fedleak.client.engine.clipped_batches import clipped_to_norm
from fedleak.client.engine.local_hyperparameters import LocalTraining
from fedleak.client.pretrained_examples import TOKENS
from tests.transformer_toys import algorithm, moved_model, texts

CLIP = 0.05


@pytest.mark.parametrize("most", [0.5, 100.0])
def test_a_clip_is_that_of_torch_for_each_client(most: float) -> None:
    generator = torch.Generator().manual_seed(0)
    gradients = {name: torch.randn(2, *shape, generator=generator) for name, shape in {"a": (3, 4), "b": ()}.items()}
    stacked = clipped_to_norm(gradients, most, stacked=True)
    for client in range(2):
        parameters = [torch.zeros(value.shape[1:], requires_grad=True) for value in gradients.values()]
        for parameter, value in zip(parameters, gradients.values(), strict=True):
            parameter.grad = value[client].clone()
        torch.nn.utils.clip_grad_norm_(parameters, most)
        alone = clipped_to_norm({name: value[client] for name, value in gradients.items()}, most, stacked=False)
        for name, parameter in zip(gradients, parameters, strict=True):
            torch.testing.assert_close(stacked[name][client], parameter.grad)
            torch.testing.assert_close(alone[name], parameter.grad)


def test_without_a_clip_gradients_stay_as_they_are() -> None:
    gradients = {"a": torch.ones(3)}
    assert clipped_to_norm(gradients, None, stacked=False) is gradients


def test_clipped_steps_are_no_plain_descent_and_have_no_known_size() -> None:
    clipped = LocalTraining(max_grad_norm=1.0)
    assert clipped.descends
    assert not clipped.plain_sgd
    own = algorithm(clipped)
    assert own.step_sums(torch.tensor([3])) is None
    assert own.single_pass_batch is None


@pytest.mark.integration
@pytest.mark.parametrize("engine", ["vectorized", "sequential"])
@pytest.mark.parametrize("optimizer", [{}, {"optimizer": "adam", "eps": 1e-3}, {"weight_decay": 0.1}])
def test_clients_train_as_a_loop_of_torch(engine: Any, optimizer: dict[str, Any]) -> None:
    local = LocalTraining(learning_rate=0.3, epochs=2, max_grad_norm=CLIP, engine=engine, threads=1, **optimizer)
    own = algorithm(local)
    model = moved_model()
    tokens = texts(2, 2)
    mask = torch.ones(2, 2, dtype=torch.bool)
    update = own.train(model, Cohort(0, torch.arange(2), {TOKENS: tokens}, mask))
    unclipped = dataclasses.replace(own, local=dataclasses.replace(local, max_grad_norm=None))
    other = unclipped.train(model, Cohort(0, torch.arange(2), {TOKENS: tokens}, mask))
    for client in range(2):
        values = {name: value.clone().requires_grad_() for name, value in model.items()}
        kind: Any = torch.optim.Adam if local.optimizer == "adam" else torch.optim.SGD
        options: dict[str, Any] = {"weight_decay": local.weight_decay}
        if local.optimizer == "adam":
            options |= {"eps": local.eps}
        steps = kind(values.values(), lr=local.learning_rate, **options)
        for _ in range(2):
            steps.zero_grad()
            own.loss(values, {TOKENS: tokens[client]}, mask[client]).backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_(list(values.values()), CLIP)
            steps.step()
        for name, value in values.items():
            change = value.detach() - model[name]
            torch.testing.assert_close(update.deltas[name][client], change, rtol=1e-3, atol=1e-6)
    # The clip matters here: without it, updates are others.
    name = next(name for name in model if "lora_B" in name)
    assert not torch.allclose(update.deltas[name], other.deltas[name], rtol=0.1)
