"""A message of a federation, of which nothing is known but its parts."""

import functools
import io
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedleak_recorder.arrays import Array, as_array
from fedleak_recorder.errors import InputError, require
from fedleak_recorder.lint.name_words import words_of
from fedleak_recorder.plain_values import parse_json

DEEPEST = 16
"""Levels of mappings and lists; deeper ones are refused."""
MOST_PARTS = 20_000
"""Parts of a message; one with more is refused."""
_EXAMPLE_NAMES = frozenset(
    {"num examples", "n examples", "examples", "num samples", "n samples", "num train", "train size", "num data"}
    | {"num steps current round", "number of examples", "number of samples", "n train", "num train samples"}
)
"""Words of the names under which frameworks and their examples send the number of training examples."""
LARGEST_JSON = 2**24
"""Bytes of JSON that are read; its values take up to 25 times as many."""
_NPY = b"\x93NUMPY"
_SHORTEST_LIST = 2
"""Numbers from which on a list is an array, and no setting."""
_FEWEST_RECORDS = 8
"""Mappings with the same keys from which on a list of them is a table."""
_OF_METRICS = frozenset(
    {"epoch", "round", "step", "iteration", "client", "site", "loss", "losses", "accuracy", "acc", "auc", "f1", "lr"}
    | {"metric", "count", "counts", "samples", "examples", "units", "layer"}
)
"""Words of names of which one makes a list of mappings one of metrics, counts or settings."""
_WAY_OUT = "Give arrays, bytes, texts, numbers, and lists and mappings of these."


@dataclass(frozen=True, kw_only=True)
class AnyMessage:
    """Parts of a message by name, without a model that would say what they mean.

    Attributes:
        arrays: numbers, of any shape; lists of numbers too.
        contents: bytes; arrays of one row of bytes stand here too.
        texts: texts; those of lists as ``name/0``, ``name/1`` ...
        numbers: single numbers.
        lists: names of the arrays that were lists, as metrics are.
        unopened: format of parts that are not opened, such as ``"a pickle"``.
        given_examples: number of training examples, if the caller knows it.

    Example:
        >>> message = AnyMessage.of({"arrays": {"w": [[0.1, 0.2]]}, "metrics": {"num-examples": 30}})
        >>> message.arrays["arrays/w"].shape, message.examples
        ((1, 2), 30)
    """

    arrays: Mapping[str, Array] = field(default_factory=dict)
    contents: Mapping[str, bytes] = field(default_factory=dict)
    texts: Mapping[str, str] = field(default_factory=dict)
    numbers: Mapping[str, float] = field(default_factory=dict)
    lists: frozenset[str] = frozenset()
    unopened: Mapping[str, str] = field(default_factory=dict)
    given_examples: int | None = None

    @classmethod
    def of(cls, parts: Mapping[Any, Any], *, examples: int | None = None) -> "AnyMessage":
        """A message of nested parts.

        Args:
            parts: arrays of any framework, bytes, texts, numbers, None, and lists and mappings of these.
            examples: number of training examples; None for what a part of such a name says.

        Raises:
            InputError: a part is something else, or there are too many levels or parts.
        """
        collected = _Parts()
        collected.add_mapping(parts, "", 0)
        return cls(
            arrays=collected.arrays,
            contents=collected.contents,
            texts=collected.texts,
            numbers=collected.numbers,
            lists=frozenset(collected.lists),
            given_examples=examples,
        )

    @functools.cached_property
    def examples(self) -> int | None:
        """Number of training examples: as given, or as a part says whose name means it; None if neither."""
        if self.given_examples is not None:
            return self.given_examples
        for name, number in self.numbers.items():
            if self.is_example_count(name) and number >= 1 and number == int(number):
                return int(number)
        return None

    @staticmethod
    def is_example_count(name: str) -> bool:
        """Whether a name means the number of training examples."""
        return " ".join(words_of(name.rpartition("/")[2])) in _EXAMPLE_NAMES

    @functools.cached_property
    def axes(self) -> dict[int, list[str]]:
        """Names of the arrays that have an axis of a length, by length."""
        by_length: dict[int, list[str]] = {}
        for name, value in self.arrays.items():
            for length in set(value.shape):
                by_length.setdefault(length, []).append(name)
        return by_length

    def others_with_axis(self, length: int, name: str) -> Iterator[str]:
        """Names of the other arrays that have an axis of a length."""
        for other in self.axes.get(length, ()):
            if other != name:
                yield other

    @property
    def size(self) -> int:
        """Bytes of all parts."""
        total = 8 * len(self.numbers)
        total += sum(value.nbytes for value in self.arrays.values())
        total += sum(map(len, self.contents.values()))
        total += sum(map(len, self.texts.values()))
        return total


class _Parts:
    """Collects the parts of a message, in their order."""

    def __init__(self) -> None:
        self.arrays: dict[str, Array] = {}
        self.contents: dict[str, bytes] = {}
        self.texts: dict[str, str] = {}
        self.numbers: dict[str, float] = {}
        self.lists: set[str] = set()
        self._count = 0

    def add_mapping(self, parts: Mapping[Any, Any], prefix: str, depth: int) -> None:
        require(depth <= DEEPEST, f"at most {DEEPEST} levels in a message", "more", _WAY_OUT)
        for key, value in parts.items():
            name = f"{prefix}{str(key)[:200]}"
            self.add(name, value, depth + 1)

    def add(self, name: str, value: Any, depth: int) -> None:
        """Adds a part, or the parts of one."""
        self._count += 1
        require(self._count <= MOST_PARTS, f"at most {MOST_PARTS} parts in a message", "more", _WAY_OUT)
        if value is None:
            return
        if isinstance(value, str):
            # JSON in a text is what it holds, as frameworks with plain metrics send lists; a single number in brackets,
            # as XGBoost writes it, is a text.
            if "," not in value or not self._add_json(name, value):
                self.texts[name] = value
        elif isinstance(value, bytes | bytearray | memoryview):
            self._add_bytes(name, bytes(value))
        elif isinstance(value, bool | int | float | np.generic):
            self._add_number(name, value)
        elif isinstance(value, Mapping):
            self._add_mapping_or_cells(name, value, depth)
        elif isinstance(value, list | tuple):
            self._add_list(name, value, depth)
        else:
            self._add_array(name, as_array(value, where=repr(name[:80])))

    def _add_mapping_or_cells(self, name: str, parts: Mapping[Any, Any], depth: int) -> None:
        """Adds a mapping; one from whole numbers to numbers is a list of cells, as histograms are sent."""
        cells = None
        if parts and all(str(key)[:20].isdecimal() for key in itertools.islice(parts, MOST_PARTS)):
            cells = _numbers_of(list(parts.values()))
        if cells is not None and cells.ndim == 1:
            self.arrays[name] = cells
            self.lists.add(name)
        else:
            self.add_mapping(parts, f"{name}/", depth)

    def _add_number(self, name: str, value: Any) -> None:
        is_real = isinstance(value, bool | int | float | np.bool_ | np.integer | np.floating)
        require(is_real, f"a real number as {name[:80]!r}", type(value).__name__, _WAY_OUT)
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        # Whole numbers stay whole: the digits of a long one are what a check looks at.
        is_whole = isinstance(value, bool | int | np.bool_ | np.integer)
        self.numbers[name] = int(value) if is_whole and math.isfinite(number) else number

    def _add_bytes(self, name: str, content: bytes) -> None:
        """Adds bytes; those that NumPy wrote, as Flower's arrays are sent, become the array."""
        if not (content.startswith(_NPY) and self._add_npy(name, content)):
            self._add_content(name, content)

    def _add_npy(self, name: str, content: bytes) -> bool:
        """Adds an array that NumPy wrote; returns False if it is damaged or of objects, so that it stays bytes."""
        try:
            self._add_array(name, np.lib.format.read_array(io.BytesIO(content), allow_pickle=False))
        except (ValueError, OSError, EOFError, SyntaxError, TypeError, MemoryError, InputError):
            return False
        return True

    def _add_content(self, name: str, content: bytes) -> None:
        """Adds bytes, and what they hold if they are JSON, as models of trees are sent."""
        self.contents[name] = content
        self._add_json(name, content)

    def _add_json(self, name: str, content: bytes | str) -> bool:
        """Adds the parts of JSON; returns whether it is JSON of lists or mappings."""
        if content[:1] not in (b"{", b"[", "{", "[") or len(content) > LARGEST_JSON:
            return False
        inner = _Parts()
        try:
            inner.add(name, parse_json(content, where=name[:80]), 0)
        # What cannot be read is judged as bytes.
        except (ValueError, InputError):
            return False
        self.arrays |= inner.arrays
        self.texts |= inner.texts
        self.numbers |= inner.numbers
        self.lists |= inner.lists
        return True

    def _add_array(self, name: str, array: Array) -> None:
        if array.dtype.kind not in "biufc":
            raise InputError(expected=f"numbers as {name[:80]!r}", found=str(array.dtype)[:80], way_out=_WAY_OUT)
        # A row of bytes may be a text or a file, as XGBoost's models are sent.
        if array.dtype == np.uint8 and array.ndim == 1:
            self._add_content(name, array.tobytes())
        elif array.size == 1 and array.ndim == 0:
            self._add_number(name, array.item())
        else:
            self.arrays[name] = array

    def _add_list(self, name: str, values: Sequence[Any], depth: int) -> None:
        require(depth <= DEEPEST, f"at most {DEEPEST} levels in a message", "more", _WAY_OUT)
        array = _numbers_of(values)
        if array is not None:
            self.arrays[name] = array
            self.lists.add(name)
            return
        columns = _columns_of(values)
        if columns:
            # The numbers of a table stand together, and texts by themselves.
            self.arrays[name] = np.column_stack(list(columns.values()))
            self.lists.add(name)
            values = [{key: cell for key, cell in record.items() if key not in columns} for record in values]
        for number, value in enumerate(values):
            self.add(f"{name}/{number}", value, depth + 1)


def _columns_of(records: Sequence[Any]) -> dict[Any, Array]:
    """Columns of numbers of a table that is sent as a list of records with the same names, NaN for no value.

    None of a list of metrics or of counts, which other checks look at one by one.

    Example:
        >>> _columns_of([{"age": 41, "sex": "f"}, {"age": None, "sex": "m"}] * 4)["age"][:2]
        array([41., nan])
        >>> _columns_of([{"epoch": epoch, "loss": 0.5} for epoch in range(8)])
        {}
    """
    if len(records) < _FEWEST_RECORDS or not isinstance(records[0], Mapping):
        return {}
    names = records[0].keys()
    if not all(isinstance(record, Mapping) and record.keys() == names for record in records):
        return {}
    columns = {}
    for name in names:
        if _OF_METRICS & {*words_of(str(name))}:
            return {}
        cells = [math.nan if record[name] is None else record[name] for record in records]
        column = _numbers_of(cells)
        if column is not None and column.ndim == 1:
            columns[name] = column.astype(np.float64)
    return columns


def _numbers_of(values: Sequence[Any]) -> Array | None:
    """Lists of numbers, of equal lengths at each level, as an array; None if it holds anything else."""
    is_row = len(values) < _SHORTEST_LIST
    if not values or (is_row and not isinstance(values[0], list | tuple)):
        return None
    # What the first entries are decides whether the rest is looked at.
    for value in itertools.islice(values, 8):
        if not isinstance(value, bool | int | float | list | tuple | np.number):
            return None
    try:
        array = np.array(values)
    except (ValueError, OverflowError, TypeError):
        return None
    if array.dtype.kind not in "biuf" or array.ndim > DEEPEST:
        return None
    return array
