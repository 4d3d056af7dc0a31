"""Embeddings of categories: a table lookup, the options' checks, and attacks that solve a first layer refuse them."""

import dataclasses

import pytest
import torch

from fedleak.attacks.reconstruction.linear_layer import layer_update
from fedleak.client.nets.category_embeddings import CategoryEmbeddings
from fedleak.client.nets.classifiers import ClassifierOptions, build_classifier, classifier_shapes
from fedleak.core.errors import InputError, ViewError
from fedleak.core.seeding import generator_for
from tests.attacks.runs import plain_view

OPTIONS = ClassifierOptions(name="mlp", hidden=5, embedding=2, categories=[(1, 3), (4, 2)])
SHAPE = (6, 1, 1)


def test_embeddings_are_rows_of_tables() -> None:
    made = CategoryEmbeddings(6, [(1, 3), (4, 2)], 2)
    row = torch.tensor([[0.7, 0.0, 1.0, 0.0, 0.0, 1.0]])
    first, second = (made.get_parameter(f"tables.{number}.weight") for number in range(2))
    assert torch.equal(made(row)[0], torch.cat([torch.tensor([0.7]), first[:, 1], second[:, 1]]))


def test_a_network_with_embeddings_has_the_declared_shapes_and_trains_its_tables() -> None:
    network = build_classifier(OPTIONS, image_shape=SHAPE, classes=3, generator=generator_for(0, "network"))
    assert {n: tuple(v.shape) for n, v in network.named_parameters()} == classifier_shapes(
        OPTIONS, image_shape=SHAPE, classes=3
    )
    network(torch.eye(6)[[1, 4]].reshape(2, *SHAPE)).sum().backward()
    tables = {name: value.grad for name, value in network.named_parameters() if ".tables." in name}
    assert len(tables) == 2
    first = tables["body.1.tables.0.weight"]
    assert first is not None
    assert bool(first[:, 0].any())
    assert not bool(first[:, 1:].any())


@pytest.mark.parametrize(
    "wrong",
    [
        {"embedding": None},
        {"categories": ()},
        {"name": "two-convolutions"},
    ],
)
def test_options_that_do_not_go_together_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(InputError, match="embedding"):
        dataclasses.replace(OPTIONS, **wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("categories", [[(1, 3), (3, 2)], [(4, 3)]])
def test_categories_that_overlap_or_are_no_inputs_are_refused(categories: list[tuple[int, int]]) -> None:
    options = dataclasses.replace(OPTIONS, categories=categories)
    with pytest.raises(InputError, match="categories"):
        build_classifier(options, image_shape=SHAPE, classes=3, generator=generator_for(0, "network"))


def test_attacks_that_take_the_first_layers_inputs_for_records_refuse_embeddings() -> None:
    shapes = classifier_shapes(OPTIONS, image_shape=SHAPE, classes=3)
    deltas = {name: torch.zeros(2, *shape) for name, shape in shapes.items()}
    view = plain_view(2, deltas=deltas, model={name: torch.zeros(shape) for name, shape in shapes.items()})
    with pytest.raises(ViewError, match="embedding"):
        layer_update(view)
