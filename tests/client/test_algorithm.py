"""The public algorithm of the clients, as attacks use it."""

import pytest
import torch

from fedleak.client.algorithm import ExampleAlgorithm
from fedleak.client.engine.local_hyperparameters import LocalTraining
from fedleak.client.text import TextAlgorithm, TextOptions


@pytest.mark.parametrize(
    ("local", "steps"),
    [
        (LocalTraining(batch_size=32), [1, 1, 2, 3]),
        (LocalTraining(batch_size=32, epochs=2), [2, 2, 4, 6]),
        (LocalTraining(epochs=3), [3, 3, 3, 3]),
        (LocalTraining(batch_size=8, updates=5), [5, 5, 5, 5]),
    ],
)
def test_local_steps_are_the_mini_batches_of_all_epochs(local: LocalTraining, steps: list[int]) -> None:
    algorithm = TextAlgorithm(network=TextOptions(vocabulary=8, embedding=2, hidden=2), local=local)
    assert isinstance(algorithm, ExampleAlgorithm)
    assert algorithm.steps(torch.tensor([1, 32, 33, 65])).tolist() == steps
