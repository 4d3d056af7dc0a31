"""Whether arrays are those of a described model: by name, order, shape, and as numbers."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from protocol.errors import InputError

Shapes = Mapping[str, Sequence[int]]
_WAY_OUT = "Describe the model that was trained, with the parameters in its own order."


def check_arrays(expected: Shapes, arrays: Mapping[str, Tensor], *, where: str) -> None:
    """Refuses arrays of another model, in another order, or that are no finite numbers.

    Args:
        expected: shapes by name, in the model's order.
        arrays: what was sent.
        where: whose or from which file, for the message.

    Raises:
        InputError: names, order, shapes or values are not as described.
    """
    check_shapes(expected, {name: tuple(value.shape) for name, value in arrays.items()}, where=where)
    for name, value in arrays.items():
        if value.dtype == torch.bool or value.is_complex() or not bool(torch.isfinite(value).all()):
            raise InputError(
                expected=f"finite real numbers in {name!r}",
                found=f"NaN, infinity or {value.dtype} in {where}",
                way_out="Leave this client out of the round, or mend what wrote it.",
            )


def check_shapes(expected: Shapes, found: Shapes, *, where: str, ordered: bool = True) -> None:
    """Refuses parameters that differ from those of a model.

    Args:
        expected: shapes by name, in the model's order.
        found: shapes by name, in theirs.
        where: whose or from which file, for the message.
        ordered: whether the order counts.

    Raises:
        InputError: the first difference, by name and shape.
    """
    wanted = _described(expected, ordered)
    given = _described(found, ordered)
    for number in range(max(len(wanted), len(given))):
        want, have = (side[number] if number < len(side) else None for side in (wanted, given))
        if want != have:
            raise InputError(
                expected=f"as parameter {number + 1} of {len(wanted)} {_told(want)}",
                found=f"{_told(have)} in {where}: {_kind(expected, found)}",
                way_out=_WAY_OUT,
            )


def named(expected: Shapes, arrays: Sequence[Tensor], *, where: str) -> dict[str, Tensor]:
    """Arrays that came without names, by their place in the model's order.

    Raises:
        InputError: there are more or fewer than the model has.
    """
    if len(arrays) != len(expected):
        shapes = ", ".join(str(tuple(value.shape)) for value in arrays)
        raise InputError(
            expected=f"{len(expected)} arrays, from {_told(_described(expected, True)[0])} on",
            found=f"{len(arrays)} in {where}, of shapes {shapes}: another model",
            way_out=_WAY_OUT,
        )
    return dict(zip(expected, arrays, strict=True))


def _described(shapes: Shapes, ordered: bool) -> list[tuple[str, tuple[int, ...]]]:
    pairs = [(name, tuple(shape)) for name, shape in shapes.items()]
    return pairs if ordered else sorted(pairs)


def _told(parameter: tuple[str, tuple[int, ...]] | None) -> str:
    return "nothing" if parameter is None else f"{parameter[0]!r} of shape {parameter[1]}"


def _kind(expected: Shapes, found: Shapes) -> str:
    same = {n: tuple(s) for n, s in expected.items()} == {n: tuple(s) for n, s in found.items()}
    return "the same parameters in another order" if same else "another model"
