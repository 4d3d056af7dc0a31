"""Written gradients of chains of layers are autograd's, and so are the steps that never write them down."""

import dataclasses

import pytest
import torch
from torch import Tensor, nn

from fedleak.client.cohort import Cohort
from fedleak.client.engine.fast.gradients import Descent
from fedleak.client.engine.fast.manual_backward import Collected, chain_loss, chain_of, product, with_marked_layout
from fedleak.client.engine.local_hyperparameters import LocalTraining
from fedleak.client.engine.local_training import train_clients
from fedleak.client.nets.classifiers import ClassifierOptions, build_classifier
from fedleak.client.network import ModuleAlgorithm
from fedleak.core.seeding import generator_for
from fedleak.defenses.base import Update

SIZES = [6, 3, 4, 0]
NETWORKS = {
    "three-modules": lambda: classifier("three-modules"),
    "two-convolutions": lambda: classifier("two-convolutions"),
    "relu first, groups, no bias": lambda: nn.Sequential(
        *(nn.ReLU(), nn.Conv2d(2, 4, 3, padding=1, groups=2, bias=False), nn.MaxPool2d(3, 2, 1), nn.ReLU()),
        *(nn.Flatten(), nn.Linear(64, 3)),
    ),
    "one channel between": lambda: nn.Sequential(
        *(
            nn.Conv2d(2, 1, 3),
            nn.ReLU(),
            nn.Conv2d(1, 5, 3),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(20, 3),
        ),
    ),
    "linear": lambda: nn.Sequential(nn.Flatten(), nn.Linear(128, 3)),
}


def classifier(name: str, **more: object) -> nn.Module:
    options = ClassifierOptions(name=name, channels=3, hidden=7, **more)  # type: ignore[arg-type]
    return build_classifier(options, image_shape=(2, 8, 8), classes=3, generator=generator_for(0, "test-chain"))


def batch(dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    generator = generator_for(0, "test-chain-batch")
    images = torch.randn(5, 2, 8, 8, generator=generator, dtype=dtype)
    return images, torch.randint(3, (5,), generator=generator), torch.tensor([True, True, False, True, False])


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last], ids=["nchw", "nhwc"])
@pytest.mark.parametrize("name", NETWORKS)
def test_written_gradient_is_autograds(name: str, layout: torch.memory_format) -> None:
    network = NETWORKS[name]()  # type: ignore[no-untyped-call]
    images, labels, mask = batch(torch.float64)
    images = images.contiguous(memory_format=layout)
    kept = images.clone()
    parameters = {n: v.detach().double().requires_grad_() for n, v in network.named_parameters()}
    expected = ModuleAlgorithm(local=LocalTraining(), module=network).loss(
        parameters, {"image": images, "label": labels}, mask
    )
    gradients = torch.autograd.grad(expected, list(parameters.values()))
    chain, sink = chain_of(network), Collected()
    assert chain is not None
    loss = chain_loss(chain, parameters, images, labels, mask, sink)
    torch.testing.assert_close(loss, expected.detach())
    assert set(sink.gradients) == set(parameters)
    for parameter, gradient in zip(parameters, gradients, strict=True):
        assert gradient.abs().max() > 1e-4
        torch.testing.assert_close(sink.gradients[parameter], gradient, rtol=1e-9, atol=1e-12)
    assert torch.equal(images, kept)


@pytest.mark.parametrize("shape", [(4, 1, 6, 5), (4, 3, 6, 5), (4, 1)])
def test_marked_layout_changes_no_value(shape: tuple[int, ...]) -> None:
    images = torch.randn(shape)
    marked = with_marked_layout(images)
    assert torch.equal(marked, images)
    assert marked.data_ptr() == images.data_ptr()
    assert marked.stride() == ((30, 1, 5, 1) if shape == (4, 1, 6, 5) else images.stride())


def test_gradient_by_images_of_one_channel_is_autograds_in_single_precision() -> None:
    network = nn.Sequential(
        *(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(72, 3))
    )
    generator = generator_for(0, "test-chain-grey")
    images, labels = torch.randn(5, 1, 10, 10, generator=generator), torch.tensor([0, 1, 2, 0, 1])
    parameters = dict(network.named_parameters())
    expected = torch.autograd.grad(nn.functional.cross_entropy(network(images), labels), list(parameters.values()))
    chain, sink = chain_of(network), Collected()
    assert chain is not None
    chain_loss(chain, parameters, images, labels, torch.ones(5, dtype=torch.bool), sink)
    for parameter, gradient in zip(parameters, expected, strict=True):
        torch.testing.assert_close(sink.gradients[parameter], gradient, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("change_only", [False, True])
def test_a_descent_is_a_step_along_the_gradient(change_only: bool) -> None:
    chain = chain_of(network := classifier("two-convolutions"))
    assert chain is not None
    before = {n: v.detach().double() for n, v in network.named_parameters()}
    after = {n: torch.full_like(v, torch.nan) for n, v in before.items()}
    sink = Collected()
    chain_loss(chain, before, *batch(torch.float64), sink)
    chain_loss(chain, before, *batch(torch.float64), Descent(before, after, 0.5, change_only=change_only))
    for name, value in before.items():
        start = torch.zeros_like(value) if change_only else value
        torch.testing.assert_close(after[name], start - 0.5 * sink.gradients[name])


@pytest.mark.parametrize("more", [{"norm": "before-activation"}, {"dropout": 0.5}, {"activation": "gelu"}])
def test_other_layers_are_left_to_autograd(more: dict[str, object]) -> None:
    network = classifier("two-convolutions", **more)
    assert chain_of(network) is None
    assert ModuleAlgorithm(local=LocalTraining(), module=network).fast() is None


@pytest.mark.parametrize("batch_size", [None, 4])
@pytest.mark.parametrize("epochs", [1, 3])
def test_descending_clients_end_where_others_do(epochs: int, batch_size: int | None) -> None:
    network = classifier("three-modules")
    generator = generator_for(0, "test-chain-clients")
    mask = torch.arange(max(SIZES)) < torch.tensor(SIZES)[:, None]
    examples = {
        "image": torch.randn(*mask.shape, 2, 8, 8, generator=generator),
        "label": torch.randint(3, mask.shape, generator=generator),
    }
    cohort = Cohort(0, torch.arange(len(SIZES)), examples, mask)
    public = {n: v.detach() for n, v in network.named_parameters()}
    local = LocalTraining(learning_rate=0.1, epochs=epochs, batch_size=batch_size, engine="sequential", threads=2)
    slow = dataclasses.replace(local, engine="vectorized", clients_per_chunk=2)

    def trained(how: LocalTraining, seed: int = 0, spent: Update | None = None) -> Update:
        task = ModuleAlgorithm(local=LocalTraining(), module=network)
        return train_clients(task, public, {}, cohort, how, seed=seed, spent=spent)

    expected, spent = trained(slow), trained(local, seed=1)
    found = trained(local, spent=spent)
    for name, delta in expected.deltas.items():
        assert delta[:3].abs().amax(list(range(1, delta.dim()))).min() > 1e-4
        assert not found.deltas[name][3].any()
        assert found.deltas[name].data_ptr() == spent.deltas[name].data_ptr()
        torch.testing.assert_close(found.deltas[name], delta, atol=1e-6, rtol=0)
    torch.testing.assert_close(found.losses[:3], expected.losses[:3], atol=1e-6, rtol=0)


@pytest.mark.parametrize("width", [7, 30_000], ids=["small", "large"])
@pytest.mark.parametrize("layout", ["rows", "columns", "gaps"])
@pytest.mark.parametrize("with_bias", [False, True])
def test_product_equals_torchs_for_any_strides(width: int, layout: str, with_bias: bool) -> None:
    made = {"rows": (5, width), "columns": (width, 5), "gaps": (5, width + 2)}
    weight = torch.randn(made[layout])
    weight = weight.t() if layout == "columns" else weight[:, -width:]
    bias = torch.randn(5) if with_bias else None
    inputs = torch.randn(6, 2 * width)[:, ::2]
    expected = nn.functional.linear(inputs.double(), weight.double(), None if bias is None else bias.double())
    torch.testing.assert_close(product(inputs, weight, bias), expected.float(), rtol=1e-4, atol=1e-3)
