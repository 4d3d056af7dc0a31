"""Comparison of arrays with the parameters of a described model: names, order, shapes and values."""

import itertools
from collections.abc import Mapping, Sequence

from fedleak_recorder.arrays import Array, is_finite
from fedleak_recorder.errors import InputError, require

Shapes = Mapping[str, Sequence[int]]
_WAY_OUT = "Describe the model that was trained, with the parameters in its own order."


def check_arrays(expected: Shapes, arrays: Mapping[str, Array], *, where: str) -> None:
    """Checks that arrays are finite parameters of a model, with the expected names and shapes in order."""
    check_shapes(expected, {name: tuple(value.shape) for name, value in arrays.items()}, where=where)
    for name, value in arrays.items():
        if not is_finite(value):
            raise InputError(
                expected=f"finite real numbers in {name!r}",
                found=f"NaN, infinity or {value.dtype} in {where}",
                way_out="Leave this client out of the round, or fix what wrote it.",
            )


def check_shapes(expected: Shapes, found: Shapes, *, where: str, ordered: bool = True) -> None:
    """Checks that parameters are those of a model."""
    wanted = [(name, tuple(shape)) for name, shape in expected.items()]
    described = [(name, tuple(shape)) for name, shape in found.items()]
    if wanted == described:
        return
    difference = "another model"
    if sorted(wanted) == sorted(described):
        difference = "the same parameters in another order"
    if not ordered:
        wanted = sorted(wanted)
        described = sorted(described)
    # The first parameter that differs is named.
    for number, (want, have) in enumerate(itertools.zip_longest(wanted, described), start=1):
        require(
            want == have,
            f"as parameter {number} of {len(wanted)} {_described(want)}",
            f"{_described(have)} in {where}: {difference}",
            _WAY_OUT,
        )


def named(expected: Shapes, arrays: Sequence[Array], *, where: str) -> dict[str, Array]:
    """Arrays without names, named in the model's order."""
    first = None
    for name, shape in expected.items():
        first = (name, tuple(shape))
        break
    shapes = ", ".join(str(tuple(value.shape)) for value in arrays)
    require(
        len(arrays) == len(expected),
        f"{len(expected)} arrays, from {_described(first)} on",
        f"{len(arrays)} in {where}, of shapes {shapes}: another model",
        _WAY_OUT,
    )
    return dict(zip(expected, arrays, strict=True))


def _described(parameter: tuple[str, tuple[int, ...]] | None) -> str:
    if parameter is None:
        return "nothing"
    name, shape = parameter
    return f"{name!r} of shape {shape}"
