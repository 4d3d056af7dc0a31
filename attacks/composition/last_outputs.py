"""The last layer of a network, found by the order and the shapes of its parameters."""

from fedleak.core.errors import ViewError
from fedleak.core.view import View


def last_outputs(view: View) -> tuple[str, int]:
    """Name of the last layer in the order of the manifest, and its number of outputs.

    Raises:
        ViewError: the last parameters are no weight ``(K, F)`` with a bias ``(K,)``.
    """
    shapes = {name: tuple(value.shape[1:]) for name, value in view.deltas.items() if name not in view.row_parameters}
    last = next((name for name, shape in reversed(shapes.items()) if len(shape) > 1), "none")
    name, shape = last.removesuffix(".weight"), shapes.get(last, ())
    if len(shape) != 2 or shapes.get(f"{name}.bias") != shape[:1]:
        raise ViewError(
            "expected a last layer NAME.weight (K, F) with NAME.bias (K,), the last in the order of the manifest;"
            f" got {last} {' x '.join(map(str, shape))}"
        )
    return name, shape[0]


def number_of_outputs(view: View) -> int | None:
    """Number of outputs of the last layer; None where the parameters do not show it."""
    try:
        return last_outputs(view)[1]
    except ViewError:
        return None
