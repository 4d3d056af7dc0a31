"""Fuzz target: messages with odd values, of which a guard lets out what its policy allows, or nothing."""

import json
import random
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml

from fedleak_guard import Guard, Message, RefusedError
from fedleak_guard.chained_log import read_log
from fedleak_guard.guard import Released
from fedleak_guard.message import tensors_hash
from fedleak_recorder.errors import InputError
from tests.fuzz.children import AcceptedError
from tests.fuzz.damages import ARRAYS, TENSORS
from tests.fuzz.guard_files import WHOLE_POLICY, good, inside
from tests.fuzz.recordings import Files
from tests.fuzz.user_files import Mutant, Parts, nothing_wrong
from tests.guard_toys import SHAPES, model, update

_CALL, _LOG = "message.json", "evidence/log.jsonl"
_TEXT = "Jane Doe, born 1970-01-01, C50.9"
"""What must not leave, wherever it stands."""
_BITS = 200.0
_OPEN_POLICY: dict[str, Any] = {
    **{"format": 1, "evidence": "evidence", "tensors": [{"name": "*"}], "received": {"record": True}},
    "metrics": {"names": ["*"], "max_values": 100, "max_bits": _BITS},
}
_POLICIES = {"strict": WHOLE_POLICY, "open": _OPEN_POLICY}


class _Turning(dict[str, Any]):
    """A mapping that gives a text once it has been read for some times."""

    def __init__(self, honest: Mapping[str, Any], reads: int) -> None:
        super().__init__(honest)
        self._reads = reads

    def items(self) -> Any:
        self._reads -= 1
        return super().items() if self._reads >= 0 else {_TEXT: _TEXT}.items()


class _TurningList(list[Any]):
    """A list whose number is another one at each reading."""

    def __init__(self) -> None:
        super().__init__([0.5])
        self._reads = 0

    def __iter__(self) -> Iterator[Any]:
        self._reads += 1
        return iter([0.5] if self._reads == 1 else [_TEXT, 0.123456789] * 50)


class _Array:
    """What says to be an array, of other numbers at each reading."""

    dtype, shape, ndim = np.dtype("float32"), SHAPES["weight"], 2

    def __init__(self) -> None:
        self._reads = 0.0

    def __array__(self, *_: Any, **__: Any) -> Any:
        self._reads += 1
        return np.full(self.shape, self._reads * 0.01, np.float32)


class _Raises:
    """What cannot be read."""

    dtype, shape, ndim = np.dtype("float32"), SHAPES["weight"], 2

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise SystemError(_TEXT)

    def __float__(self) -> float:
        raise ZeroDivisionError(_TEXT)

    def __str__(self) -> str:
        raise KeyError(_TEXT)

    __repr__ = __str__


class _Name(str):
    """A name that equals every other one, and has another text than it is compared with."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return hash("weight")

    def __str__(self) -> str:
        return "weight"


class _Number(float):
    """A number that gives a text where it is written."""

    def __repr__(self) -> str:
        return f'"{_TEXT}"'

    __str__ = __repr__


class _Whole(int):
    """The same of whole numbers."""

    def __repr__(self) -> str:
        return f'"{_TEXT}"'

    __str__ = __repr__


def _deep(levels: int) -> Any:
    value: Any = 0.5
    for _ in range(levels):
        value = [value]
    return value


def _endless() -> Any:
    value: list[Any] = [0.5]
    value.append(value)
    return value


def _changed(change: Callable[[torch.Tensor], Any]) -> Callable[[np.ndarray[Any, Any]], Any]:
    return lambda array: change(torch.from_numpy(array))


_TENSORS: dict[str, Callable[[np.ndarray[Any, Any]], Any]] = {
    **ARRAYS,
    **{f"torch {name}": _changed(change) for name, change in TENSORS.items()},
    "signed zeros": lambda a: np.where(a > 0, np.float32(-0.0), np.float32(0.0)),
    "one signed zero": lambda a: np.where(np.arange(a.size).reshape(a.shape) == 1, np.float32(-0.0), a),
    "tiny": lambda a: (a * 1e-42).astype(np.float32),
    "not contiguous": lambda a: np.repeat(a, 2, -1)[..., ::2],
    "read-only": lambda a: np.broadcast_to(a[..., :1], a.shape),
    "masked": lambda a: np.ma.masked_array(a, mask=a > 0),
    "turning": lambda _: _Array(),
    "raises": lambda _: _Raises(),
    "ragged": lambda _: [[1.0], [2.0, 3.0]],
    "list": lambda a: a.tolist(),
    "text": lambda _: _TEXT,
    "nothing": lambda _: None,
    "empty mapping": lambda _: {},
    "object": lambda _: object(),
    "texts of bytes": lambda _: np.frombuffer(_TEXT.encode(), np.uint8),
    "on no device": lambda a: torch.empty(a.shape, device="meta"),
    "gradient": lambda a: torch.from_numpy(a).requires_grad_(),
    "sparse": lambda a: torch.from_numpy(a).to_sparse(),
    "none of (n, 0)": lambda _: np.zeros((len(_TEXT), 0), np.float32),
}
_PLAIN: list[Any] = [
    *(None, True, 0, -1, 1.5, -0.0, 10**18, 2**63, 10**30, 10**400, 1e-320, 1e308, float("nan"), float("inf")),
    *("", "x", "0.5", "\ud800", b"x", 1j, [], {}, (), [[]], [{}], {"a": {}}, {"a": []}, {_TEXT: {}}, {_TEXT: []}),
    *({_TEXT: 0.5}, [0.5] * 50, [1, [2, "x"]], {1: 2}, {None: 1}, {"": 0.5}, {"a.b": 0.5}, {"x"}),
]
_VALUES: dict[str, Any] = {
    **{"a wide tree": [[]] * 2000, "a wide array": np.zeros((2000, 0))},
    **{repr(one)[:40]: one for one in _PLAIN},
    **{"object": object(), "range": range(3), "NumPy's 3": np.int64(3), "NumPy's NaN": np.float32("nan")},
    **{"array": np.array([1, 2]), "empty array": np.zeros((5, 0)), "array of texts": np.array([_TEXT])},
    **{"tensor": torch.tensor(0.5), "turning list": _TurningList, "raises": _Raises, "number": _Number(0.5)},
    **{"whole number": _Whole(3), "deep": _deep(500), "deeper": _deep(50_000), "in itself": _endless},
    **{"bytes of a text": [*_TEXT.encode()], "digits": 0.1234567890123456, "long text": _TEXT * 1000},
    **{
        "signs": [-0.0, 0.0] * 8,
        "a tree": [[[], []], [[]]],
        "turning": lambda: _Turning({"loss": 0.5}, 1),
    },
}
"""Odd values; a class or a function makes a new one for each message."""
_NAMES: dict[str, Any] = {
    **{repr(one)[:40]: one for one in ("", "\0", "\ud800", " weight", "Weight", "weight.x")},
    "3": 3,
    "None": None,
    "tuple": ("a",),
    "bytes": b"weight",
    **{"a text": _TEXT, "a text of a tensor": f"{_TEXT}.weight", "long": "a" * 10**6, "name": _Name(_TEXT)},
    **{"two lines": "weight\nx", "look-alike": "w\u0435ight", "surrogate": "loss\udc80", "wild": "*"},
}
_MAPPINGS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "turning at once": lambda given: _Turning(given, 0),
    "turning after 1": lambda given: _Turning(given, 1),
    "turning after 2": lambda given: _Turning(given, 2),
    "turning after 4": lambda given: _Turning(given, 4),
    "empty": lambda _: {},
    "list": lambda given: [*given.items()],
    "nothing": lambda _: None,
    "text": lambda _: _TEXT,
    "more": lambda given: {**given, _TEXT: {}},
    "one less": lambda given: dict([*given.items()][1:]),
}
_OTHER_PARTS = ("mapping", "name", "free")
_FREE = ("job", "round", "examples", "unknown", "records", "labels", "algorithm", "network", "holds")
"""Arguments that may be any value."""


def whole_call() -> Files:
    """A message without anything odd, under a policy that is drawn."""
    return {_CALL: json.dumps({"policy": "strict", "odd": []}).encode()}


def change_call(files: Files, draws: random.Random) -> Mutant:
    """One to three odd parts: a tensor, a metric, a name of one, the mapping that holds them, or another argument."""
    odd = []
    for _ in range(draws.choice([1, 1, 2, 3])):
        part = draws.choice(["sent", "sent", "metrics", "metrics", "received", "before_noise", *_OTHER_PARTS])
        if part in ("sent", "received", "before_noise"):
            odd.append([part, draws.choice([*SHAPES]), draws.choice([*_TENSORS])])
        elif part == "metrics":
            odd.append([part, draws.choice(["loss", "accuracy", _TEXT]), draws.choice([*_VALUES])])
        elif part == "mapping":
            odd.append([part, draws.choice(["sent", "received", "metrics"]), draws.choice([*_MAPPINGS])])
        elif part == "name":
            odd.append([part, draws.choice(["sent", "received", "metrics"]), draws.choice([*_NAMES])])
        else:
            odd.append([part, draws.choice(_FREE), draws.choice([*_VALUES])])
    policy = draws.choice([*_POLICIES])
    return {_CALL: json.dumps({"policy": policy, "odd": odd}).encode()}, f"{policy} {odd}"


def odd_message(odd: list[list[str]]) -> Message:
    """The message of a call."""
    given: dict[str, Any] = {"job": "job", "round": 1, "sent": update(1), "received": model(), "examples": 50}
    given["metrics"] = {"loss": 0.5}
    for part, name, how in odd:
        if part in ("sent", "received", "before_noise"):
            usual = update(1) if part == "before_noise" else {**model(), **update(1)}
            held = given.get(part)
            given[part] = {**(held if isinstance(held, dict) else usual), name: _TENSORS[how](usual[name])}
        elif part == "metrics":
            value = _VALUES[how]
            held = given[part]
            given[part] = {**(held if isinstance(held, dict) else {}), name: value() if callable(value) else value}
        elif part == "mapping":
            given[name] = _MAPPINGS[how](given[name] if isinstance(given[name], dict) else {})
        elif part == "name":
            held = given[name]
            given[name] = {**(held if isinstance(held, dict) else {}), _NAMES[how]: update(1)["bias"]}
            if name == "metrics":
                given[name][_NAMES[how]] = 0.5
        else:
            value = _VALUES[how]
            given[name] = value() if callable(value) else value
    return Message(**given)


def read_message(folder: Path) -> str:
    """What leaves of a message, or a refusal; afterwards the log is whole, and an honest message leaves.

    Raises:
        InputError: nothing left.
        AcceptedError: something left without an entry, or that no policy allows.
    """
    call = json.loads((folder / _CALL).read_bytes())
    path = folder / "policy.yaml"
    path.write_text(yaml.safe_dump(_POLICIES[call["policy"]], sort_keys=False))
    with inside(folder):
        what: Message | None = None
        released: Released | None = None
        refused = ""
        try:
            what = odd_message(call["odd"])
            released = Guard(path).release(what)
        except RefusedError as error:
            refused = str(error)
        if released is not None:
            problem = next(_problems(released, call["policy"]), None)
            if problem is not None:
                raise AcceptedError(problem)
        _check_log(released)
        try:
            Guard(path).release(good(2))
        except RefusedError as error:
            raise AcceptedError(f"nothing leaves any more: {error}") from None
    if released is None:
        raise InputError(expected="a message that may leave", found=refused, way_out="")
    return f"{tensors_hash(released.tensors or {})} {dict(released.metrics)!r}"


def _check_log(released: Released | None) -> None:
    """Raises unless the log is a chain with an entry on what left; it may have one on what then failed to leave."""
    entries, torn = read_log(Path(_LOG)) if Path(_LOG).exists() else ([], 0)
    left = [entry for entry in entries if entry["event"] == "released"]
    if torn or len(left) < (released is not None):
        raise AcceptedError(f"{[entry['event'] for entry in entries]} in the log")
    if released is not None and released.tensors is not None and left[0]["content"] != tensors_hash(released.tensors):
        raise AcceptedError("other tensors left than those of the entry")


def _problems(released: Released, policy: str) -> Iterator[str]:
    """What left although it may not, whatever the guard's checks say."""
    names = set(SHAPES)
    for name, value in (released.tensors or {}).items():
        if type(name) is not str or name not in names:
            yield f"a tensor of the name {name!r:.60}"
        elif type(value) is not np.ndarray or value.dtype.kind not in "fiub":
            yield f"{name} as {type(value).__name__}"
        elif value.shape != SHAPES[name]:
            yield f"{name} of the shape {value.shape}"
        elif value.dtype.kind == "f":
            if not np.isfinite(value).all():
                yield f"{name} that is not finite"
            if np.signbit(value[value == 0]).any():
                yield f"signed zeros of {name}"
    keys, problems = list[str](), list[str]()
    empty = _walk(dict(released.metrics), keys, problems)
    yield from problems
    unknown = [key for key in keys if key not in ("loss", "accuracy")]
    if unknown and policy == "strict":
        yield f"a metric of the name {unknown[0]!r:.60}"
    # A character of a name that the sender chooses, and an empty list, carry at least one bit.
    bits = sum(map(len, unknown)) + empty
    if bits > _BITS:
        yield f"names and empty lists of at least {bits} bits under max_bits {_BITS:g}"


def _walk(value: Any, keys: list[str], problems: list[str]) -> int:
    """Collects the keys of a metric, and what is no number; returns the number of its empty parts."""
    waiting, first, empty = [value], True, 0
    while waiting:
        one = waiting.pop()
        if isinstance(one, dict | list) and not one and not first:
            empty += 1
        first = False
        if type(one) is dict:
            keys += [key if type(key) is str else repr(key) for key in one]
            waiting += one.values()
        elif type(one) is list:
            waiting += one
        elif type(one) not in (int, float, bool):
            problems.append(f"{type(one).__name__} {object.__repr__(one)[:40]} as a metric")
    return empty


def targets() -> list[Parts]:
    """Messages of a loop of one's own, which may hold any object."""
    return [("messages of a guard", whole_call, change_call, read_message, nothing_wrong)]
