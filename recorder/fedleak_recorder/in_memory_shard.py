"""A shard that is not written yet."""

from collections.abc import Mapping

from fedleak_recorder.arrays import Array


class InMemoryShard:
    """Arrays in memory with the interface of an opened safetensors file."""

    def __init__(self, arrays: Mapping[str, Array]) -> None:
        self._arrays = arrays

    def keys(self) -> list[str]:
        return list(self._arrays)

    def get_tensor(self, name: str) -> Array:
        return self._arrays[name]

    def get_slice(self, name: str) -> "_Part":
        return _Part(self._arrays[name])


class _Part:
    """A tensor of which rows are read."""

    def __init__(self, array: Array) -> None:
        self._array = array

    def get_shape(self) -> list[int]:
        return list(self._array.shape)

    def __getitem__(self, rows: slice) -> Array:
        return self._array[rows]
