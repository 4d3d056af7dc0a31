"""Images in the span of an update: which are certain, and mixtures of images that look like one."""

import pytest
import torch
from torch import Tensor

from fedleak.attacks.reconstruction.pixel_grid import as_levels, on_grid
from fedleak.attacks.reconstruction.record_candidates import RecordErrors, confirm
from fedleak.attacks.reconstruction.record_span import RecordSpan
from fedleak.attacks.reconstruction.row_span import decomposed
from fedleak.core.seeding import generator_for

PIXELS, NEURONS, CLASSES, RATE = 40, 24, 10, 0.1


def even_images(count: int, *, seed: int = 0) -> Tensor:
    """``(count, PIXELS)`` values of images of even levels."""
    levels = torch.randint(1, 127, (count, PIXELS), generator=generator_for(seed, "even images"))
    return (2 * levels).double() / 255


class Layer:
    """A layer of ReLU before a softmax, all of whose neurons are excited by all images if they have a large bias."""

    def __init__(self, *, output_scale: float = 0.1, bias: float = 5.0) -> None:
        draws = generator_for(0, "layer")
        self.weight = 0.1 * torch.randn(NEURONS, PIXELS, generator=draws, dtype=torch.float64)
        self.bias = torch.full((NEURONS, 1), bias, dtype=torch.float64)
        self.output = output_scale * torch.randn(CLASSES, NEURONS, generator=draws, dtype=torch.float64)
        self.model = torch.cat([self.weight, self.bias], dim=1)

    def errors(self, records: Tensor) -> Tensor:
        hidden = records @ self.weight.T + self.bias[:, 0]
        wrong = (hidden.relu() @ self.output.T).softmax(1)[:, None] - torch.eye(CLASSES, dtype=torch.float64)
        return (wrong @ self.output) * (hidden > 0).double()[:, None]

    def rows(self, records: Tensor, labels: Tensor) -> Tensor:
        """The update of a client."""
        changes = self.errors(records)[torch.arange(len(records)), labels]
        points = torch.cat([records, torch.ones(len(records), 1, dtype=torch.float64)], dim=1)
        return -RATE * changes.T @ points

    def span(self, rows: Tensor, count: int, *, errors: RecordErrors | None = None, known: bool = True) -> RecordSpan:
        return RecordSpan(
            rows,
            count,
            bounds=torch.finfo(torch.float64).eps * rows.abs(),
            precision=torch.finfo(torch.float64).eps,
            model=self.model,
            errors=(errors or self.errors) if known else None,
            rate=RATE,
        )


def certain_among(span: RecordSpan, points: Tensor) -> list[bool]:
    """Whether each of some points is certain after they were taken."""
    span.take(points)
    span.decide()
    certain = {candidate.levels.numpy().tobytes() for candidate in span.candidates if candidate.certain}
    return [as_levels(point).numpy().tobytes() in certain for point in points]


def test_images_that_the_update_shows_once_are_certain() -> None:
    layer, images = Layer(), even_images(6)
    span = layer.span(layer.rows(images, torch.arange(6)), 6)
    assert certain_among(span, images) == [True] * 6


@pytest.mark.parametrize("output_scale", [0.1, 1e-3])
def test_the_middle_of_two_images_of_a_class_is_there_twice_and_so_not_certain(output_scale: float) -> None:
    layer, images = Layer(output_scale=output_scale), even_images(6)
    middle = (images[:1] + images[1:2]) / 2
    span = layer.span(layer.rows(images, torch.tensor([3, 3, 3, 1, 2, 4])), 6)
    assert on_grid(middle).all()
    assert certain_among(span, middle) == [False]
    multiples = [candidate.multiple for candidate in span.candidates if candidate.isolated]
    assert multiples == pytest.approx([2.0] * len(multiples), rel=1e-2)


@pytest.mark.parametrize("factor", [0.5, 2.0])
def test_of_a_wrong_step_size_the_middle_is_not_taken_for_one_image(factor: float) -> None:
    """At twice the rate that the server believes in, an image is there twice, and at half of it the middle once."""
    layer, images = Layer(), even_images(6)
    middle = (images[:1] + images[1:2]) / 2
    span = layer.span(factor * layer.rows(images, torch.tensor([3, 3, 3, 1, 2, 4])), 6)
    assert certain_among(span, torch.cat([images[2:], middle])) == [True] * 4 + [False]


def test_a_step_that_one_client_shows_to_be_smaller_is_that_of_the_others_too() -> None:
    """At half of the declared step an image is there half a time, and the middle of two others once."""
    layer, images = Layer(), even_images(3)
    middle = (images[:1] + images[1:2]) / 2
    alone = layer.span(layer.rows(images[:2], torch.tensor([3, 3])) / 2, 2)
    assert certain_among(alone, middle) == [True]
    other = layer.span(layer.rows(images[2:], torch.tensor([1])) / 2, 1)
    assert certain_among(other, images[2:]) == [False]
    confirm([*alone.candidates, *other.candidates], None)
    assert not any(candidate.certain for candidate in alone.candidates)


def test_an_image_that_a_client_has_twice_is_found_and_not_certain() -> None:
    layer, images = Layer(), even_images(4)
    rows = layer.rows(images[[0, 0, 1, 2, 3]], torch.tensor([3, 3, 1, 2, 4]))
    assert certain_among(layer.span(rows, 5), images) == [False, True, True, True]


def test_with_as_many_images_as_neurons_the_columns_certify_nothing() -> None:
    layer, images = Layer(bias=0.0), even_images(NEURONS + 4)
    span = layer.span(layer.rows(images, torch.arange(NEURONS + 4) % CLASSES), NEURONS + 4)
    assert not span.has_columns
    assert not any(certain_among(span, images))


def test_the_changes_by_another_loss_certify_nothing() -> None:
    layer, images = Layer(), even_images(6)
    span = layer.span(layer.rows(images, torch.arange(6)), 6, errors=lambda records: layer.errors(records) ** 3)
    assert not any(certain_among(span, images))


def test_a_decomposition_is_found_where_the_fast_algorithm_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    matrix = even_images(6)

    def fails(*_: object, **__: object) -> None:
        raise RuntimeError("linalg.svd: The algorithm failed to converge")

    monkeypatch.setattr(torch.linalg, "svd", fails)
    left, values, right = decomposed(matrix)
    torch.testing.assert_close(left * values @ right, matrix)
