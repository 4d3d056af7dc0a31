"""Parameters of the model whose training is recorded, as its first description has them."""

from collections.abc import Mapping, Sequence
from typing import Any

from fedleak_recorder.arrays import FLOATS, Array, as_array, is_float
from fedleak_recorder.errors import require
from fedleak_recorder.recorder_arguments import is_shape, read_list, read_mapping
from fedleak_recorder.shape_check import named
from fedleak_recorder.system import DType

Arrays = Mapping[str, Any] | Sequence[Any]
"""Parameters by name, as ``state_dict()`` gives them, or a list of them in the model's order."""


class DescribedModel:
    """Names, shapes and type of the recorded parameters, from arrays or from shapes.

    Args:
        parameters: arrays or shapes by name, in the model's order.

    Attributes:
        shapes: by name, of the floating-point parameters, which are recorded.
        dtype: float64 if all parameters are arrays of that type, else float32.

    Raises:
        InputError: there is no floating-point parameter.
    """

    def __init__(self, parameters: Mapping[str, Any]) -> None:
        self.shapes: dict[str, tuple[int, ...]] = {}
        self._names = list(parameters)
        """Names of all parameters that were described, in order, those that are not recorded among them."""
        types = set()
        for name, value in parameters.items():
            if is_shape(value):
                self.shapes[name] = tuple(int(size) for size in value)
                continue
            array = as_array(value, where=f"{name!r} of parameters")
            if is_float(array):  # a counter, such as num_batches_tracked, is no parameter
                self.shapes[name] = array.shape
                types.add(array.dtype.name)
        way_out = "Give the model's state_dict(), or shapes by name."
        require(self.shapes, f"parameters of a type among {', '.join(FLOATS)}", "none", way_out)
        self.dtype: DType = "float64" if types == {"float64"} else "float32"

    def recorded(self, arrays: Arrays, where: str) -> dict[str, Array]:
        """The recorded ones among a model's arrays, by name.

        Args:
            arrays: by name, or a list of all parameters or of the recorded ones in the model's order.
            where: what they are, for errors.
        """
        if not isinstance(arrays, Mapping):
            listed = read_list(arrays, where)
            if len(listed) != len(self._names):
                return named(self.shapes, [as_array(value, where=where) for value in listed], where=where)
            arrays = dict(zip(self._names, listed, strict=True))
        by_name = read_mapping(arrays, where)
        left_out = set(self._names) - set(self.shapes)
        recorded = {}
        for name, value in by_name.items():
            if name in left_out:
                continue
            array = as_array(value, where=f"{name!r} of {where}")
            # An array of floating-point numbers that was not described is another model's, which the checks say.
            if name in self.shapes or is_float(array):
                recorded[name] = array
        return recorded
