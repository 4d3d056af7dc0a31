"""Comparison of arrays with the parameters of a described model: names, order, shapes and values."""

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
    wanted, given = ([(name, tuple(shape)) for name, shape in shapes.items()] for shapes in (expected, found))
    if wanted == given:
        return
    same = sorted(wanted) == sorted(given)
    if not ordered:
        wanted, given = sorted(wanted), sorted(given)
    for number in range(max(len(wanted), len(given))):
        want, have = (side[number] if number < len(side) else None for side in (wanted, given))
        require(
            want == have,
            f"as parameter {number + 1} of {len(wanted)} {_described(want)}",
            f"{_described(have)} in {where}: {'the same parameters in another order' if same else 'another model'}",
            _WAY_OUT,
        )


def named(expected: Shapes, arrays: Sequence[Array], *, where: str) -> dict[str, Array]:
    """Arrays without names, named in the model's order."""
    shapes = ", ".join(str(tuple(value.shape)) for value in arrays)
    first = next(((name, tuple(shape)) for name, shape in expected.items()), None)
    found = f"{len(arrays)} in {where}, of shapes {shapes}: another model"
    require(len(arrays) == len(expected), f"{len(expected)} arrays, from {_described(first)} on", found, _WAY_OUT)
    return dict(zip(expected, arrays, strict=True))


def _described(parameter: tuple[str, tuple[int, ...]] | None) -> str:
    return "nothing" if parameter is None else f"{parameter[0]!r} of shape {parameter[1]}"
