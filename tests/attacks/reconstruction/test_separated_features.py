"""Features of single examples follow exactly from the sums in an update, and nothing follows from a foreign one."""

import dataclasses
import functools

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedleak.attacks.reconstruction.separated_features import Errors, Separated, separate
from fedleak.core.seeding import generator_for

EXAMPLES, HIDDEN, WIDTH, CLASSES = 4, 40, 30, 5


@dataclasses.dataclass(frozen=True)
class Toy:
    """Gradient ``(N, D + 1)`` of a hidden layer, what an input makes of the errors, inputs and classes."""

    rows: Tensor
    errors: Errors
    inputs: Tensor
    classes: Tensor


@functools.cache
def toy(seed: int = 0, hidden: int = HIDDEN) -> Toy:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        first, last = nn.Linear(WIDTH, hidden).double(), nn.Linear(hidden, CLASSES).double()
        inputs = torch.rand(EXAMPLES, WIDTH).double()
    classes = torch.tensor([0, 0, 1, 3])

    def errors(points: Tensor) -> Tensor:
        outputs = first(points).detach().repeat_interleave(CLASSES, 0).requires_grad_()
        loss = functional.cross_entropy(
            last(outputs.relu()), torch.arange(CLASSES).repeat(len(points)), reduction="sum"
        )
        (found,) = list[Tensor](torch.autograd.grad(loss, outputs))
        return found.reshape(len(points), CLASSES, hidden)

    loss = functional.cross_entropy(last(first(inputs).relu()), classes)
    weight, bias = torch.autograd.grad(loss, list(first.parameters()))
    return Toy(torch.cat([weight, bias[:, None]], dim=1), errors, inputs, classes)


def found(own: Toy, rows: Tensor, *, precision: float = 1e-15) -> Separated:
    return separate(rows, EXAMPLES, own.errors, precision=precision, generator=generator_for(0, "attack"))


def test_inputs_of_all_examples_are_exact_also_in_float32() -> None:
    for seed in range(3):
        own = toy(seed)
        for rows, precision, tolerance in ((own.rows, 1e-15, 1e-9), (own.rows.float().double(), 1.2e-7, 1e-3)):
            separated = found(own, rows, precision=precision)
            assert separated.complete
            distance = torch.cdist(own.inputs, separated.inputs)
            assert float(distance.amin(1).max()) < tolerance
            assert torch.equal(separated.classes[distance.argmin(1)], own.classes)
            assert torch.allclose(separated.errors.T @ separated.inputs / EXAMPLES, rows[:, :-1], atol=1e-4)


def test_examples_without_a_neuron_of_their_own_follow_from_silent_neurons() -> None:
    """A matrix in which each of three examples is silent at three neurons, and none is alone anywhere."""
    silent = torch.ones(3, 12)
    for example in range(3):
        silent[example, 3 * example : 3 * example + 3] = 0
    draw = generator_for(0, "toy")
    columns = silent.double() * torch.rand(3, 12, generator=draw).double().add(0.5)
    inputs = torch.rand(3, 9, generator=draw).double()
    rows = columns.T @ torch.cat([inputs, torch.ones(3, 1).double()], dim=1) / 3

    def errors(points: Tensor) -> Tensor:
        """The columns themselves for inputs of this batch, and a foreign one for others."""
        near = torch.cdist(points, inputs)
        own = columns[near.argmin(1)].where((near.amin(1) < 1e-6)[:, None], columns.flip(1)[near.argmin(1)] + 1)
        return own[:, None]

    separated = separate(rows, 3, errors, precision=1e-15, generator=draw)
    assert separated.complete
    assert float(torch.cdist(inputs, separated.inputs).amin(1).max()) < 1e-9


def test_nothing_is_certain_of_noise_of_other_weights_and_of_too_few_neurons() -> None:
    own, draw = toy(), generator_for(0, "noise")
    noise = torch.randn(own.rows.shape, generator=draw).double()
    low_rank = (
        torch.randn(HIDDEN, EXAMPLES, generator=draw).double()
        @ torch.randn(EXAMPLES, WIDTH + 1, generator=draw).double()
    )
    for rows in (noise, low_rank, torch.zeros_like(own.rows), own.rows + 0.1 * own.rows.abs().max() * noise):
        assert not len(found(own, rows).inputs)
    other = dataclasses.replace(own, errors=toy(1).errors)
    assert not len(found(other, own.rows).inputs)
    assert not found(toy(0, 2), toy(0, 2).rows).complete


def test_a_combination_of_examples_is_not_certain() -> None:
    """The ratio of a neuron that two examples excite, with the update of these two only."""
    own = toy()
    mean = own.inputs[:2].mean(0, keepdim=True)
    change = own.errors(mean)[0]
    rows = change[:1].T @ torch.cat([own.inputs[:1], torch.ones(1, 1).double()], dim=1)
    separated = separate(rows, 1, own.errors, precision=1e-15, generator=generator_for(0, "attack"))
    assert not len(separated.inputs)
