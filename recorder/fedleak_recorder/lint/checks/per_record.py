"""One value for each record: losses, predictions, times, event flags."""

from collections.abc import Iterator

from fedleak_recorder.arrays import Array
from fedleak_recorder.lint.any_message import AnyMessage
from fedleak_recorder.lint.finding import Finding
from fedleak_recorder.lint.sample import column_of
from fedleak_recorder.lint.settings import Settings
from fedleak_recorder.lint.sparse_updates import is_of_sparse_update

_FEWEST = 4
"""Values from which on their number is compared with that of the examples."""
_FEWEST_OF_TENSORS = 8
"""The same of an array beside others, which may have a dimension of that length by chance."""


def findings(message: AnyMessage, settings: Settings) -> Iterator[Finding]:  # noqa: ARG001 - as every check
    """Arrays and lists with as many values as there are training examples."""
    count = message.examples
    if count is None or count < _FEWEST:
        return
    for name, array in message.arrays.items():
        if array.size != count or column_of(array) is None:
            continue
        is_list = name in message.lists
        if is_list or (count >= _FEWEST_OF_TENSORS and not _is_of_a_layer(message, name, array)):
            what = f"one value for each of the {count} training examples"
            yield Finding("per-record", what, name, "likely")


def _is_of_a_layer(message: AnyMessage, name: str, array: Array) -> bool:
    """Whether another array has a side of that length, as the weight beside a bias has, or both are a sparse update."""
    if is_of_sparse_update(message, name):
        return True
    return any(message.arrays[other].ndim > 1 for other in message.others_with_axis(array.size, name))
