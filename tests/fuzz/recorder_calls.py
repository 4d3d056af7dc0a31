"""Fuzz target: calls of the recorder with odd arguments, each of which is recorded as given or refused in one line."""

import json
import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fedleak_recorder import InputError, Recorder
from tests.fuzz.damages import ARRAYS, FIELDS
from tests.fuzz.oracle import contradiction
from tests.fuzz.recordings import Files, read_tree

_SHAPES = {"w": (3, 4), "b": (4,)}
_ROUNDS, _CLIENTS = 2, 3

Array = np.ndarray[Any, np.dtype[Any]]
_ARRAYS: dict[str, Callable[[Array], Any]] = {
    **ARRAYS,
    "float16": lambda r: r.astype("f2"),
    "bfloat16": lambda r: torch.from_numpy(r).bfloat16(),
    "float8": lambda r: torch.from_numpy(r).to(torch.float8_e4m3fn),
    "long double": lambda r: r.astype(np.longdouble),
    "whole numbers": lambda r: (100 * r).astype(int),
    "list": lambda r: r.tolist(),
    "list of huge numbers": lambda r: (1e39 * r).tolist(),
    "ragged list": lambda _: [[1.0], [2.0, 3.0]],
    "some are not numbers": lambda r: np.where(r > 0, np.nan, r),
    "1e39": lambda r: np.full_like(r, 1e39),
    "every second": lambda r: np.repeat(r, 2, -1)[..., ::2],
    "masked": lambda r: np.ma.masked_array(r, mask=r > 0),
    "nothing": lambda _: None,
    "parameter": lambda r: torch.nn.Parameter(torch.from_numpy(r)),
    "sparse": lambda r: torch.from_numpy(r).to_sparse(),
    "without memory": lambda r: torch.empty(r.shape, device="meta"),
    "quantized": lambda r: torch.quantize_per_tensor(torch.from_numpy(r).float(), 0.1, 0, torch.qint8),
    "conjugated": lambda r: torch.from_numpy(r + 0j).conj().imag,
    "read-only": lambda r: np.broadcast_to(r[..., :1], r.shape),
    "range": lambda r: range(r.shape[-1]),
}
_WHOLES: dict[str, Any] = {
    **{repr(n): n for n in (0, -1, 2**48, 2**63, 10**30, 0.5, 1.9, 2.0, "7", True, None, [3], 1e400, "\ud800", b"1")},
    **{"NumPy's 3": np.int64(3), "NumPy's 2.7": np.float64(2.7), "NumPy's True": np.bool_(True)},
    **{"NaN": float("nan"), "tensor": torch.tensor(4), "two": np.array([2, 3]), "one in a list": np.array([3])},
    **{"no memory": torch.empty((), device="meta", dtype=torch.int64), "complex": 1j},
}
_NAMES: dict[str, Any] = {
    repr(name)[:20]: name
    for name in ("b", 3, ("x", 1), None, "", "é", "\ud800", "a" * 10**5, b"x", 1.5, "../x", "\0", -0.0, False, "1", 1)
}
_CONTENTS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "list": lambda arrays: list(arrays.values()),
    "tuple": lambda arrays: tuple(arrays.values()),
    "empty": lambda _: {},
    "one more": lambda arrays: {**arrays, "z": np.zeros(2)},
    "one less": lambda arrays: {"w": arrays["w"]},
    "another order": lambda arrays: dict(reversed(arrays.items())),
    "a counter": lambda arrays: {**arrays, "n": np.int64(3)},
    "a number as name": lambda arrays: {**arrays, 1: np.zeros(2)},
    "nothing": lambda _: None,
    "an array": lambda _: np.zeros(5),
    "text": lambda _: "wb",
}
_COUNTS: list[Any] = [[1, 2], [-1, 2], [0, 0], [float("nan")], "x", None, [1j], [10**30]]
_TRUTHS: dict[str, Any] = {
    **{f"counts {counts}": {"class_counts": counts} for counts in _COUNTS},
    **{"labels": {"labels": [1]}, "a slash": {"a/b": [1]}, "a fraction": {"user": [1.5]}, "no list": {"user": 3}},
    **{"a number as name": {1: 2}, "no name": {"": [1]}, "a name of ours": {"clients": [1]}, "list": [1], "None": None},
}
_RECORDS: dict[str, Any] = {
    repr(one)[:40]: one
    for one in (np.zeros(()), torch.tensor(1.0), np.zeros((5, 3)), np.zeros((0, 3)), np.zeros((5, 0)), "x", None, 3)
}
_RECORDS |= {"objects": np.array([{}], object), "NaN": np.full((5, 3), np.nan), "ragged": [[1.0], [2.0, 3.0]]}
_RECORDS |= {"without memory": torch.empty((5, 3), device="meta"), "texts": np.array(["a"]), "endless": range(10**12)}
_GRIDS: dict[str, Any] = {
    **{"step 0": (0.0, 0.0), "step -1": (-1.0, 0.0), "NaN": (float("nan"), 0.0), "texts": ("a", "b"), "text": "ab"},
    **{"one": (1.0,), "number": 5, "None": None, "list": ([1.0], 0.0), "right": (1.0, 0.0)},
}
_TOGETHER: dict[str, Any] = {
    repr(one)[:40]: one for one in (["c0", "c1"], ["x"], [], "c0", 5, None, [["c0"]], ["c0", "c0"], {"c0": 1}, [None])
}
_SERVED: dict[str, Any] = {
    repr(one)[:40]: one for one in ([1, 2], [1, 1], [-1], [], [2**62], [2**64], [1.5], "ab", None, [[1]], 3, [True])
}
_GIVEN: list[tuple[str, list[Any]]] = [
    ("dtype", ["float64", "float16", None, [1]]),
    ("holds", ["deltas", "delta", None, ["models"]]),
    ("data", [*FIELDS["data"], {"name": ""}, {"name": "a", "x": "y"}, "\ud800"]),
    ("key", [b"x" * 16, "x" * 16, b"x", b"", 5, bytearray(16)]),
    ("learner", ["x", {"name": "fncf"}, {"name": 1, "arguments": {}}, [], {1: 2}]),
    ("releases", [*FIELDS["releases"], [{"clip": 0}], [{"noise_scale": float("nan")}], [{"clip": "a"}]]),
    ("releases", [[{"parameters": names}] for names in (["z"], "w", [1], [["w"]])]),
    ("row_parameters", [*FIELDS["row_parameters"], ["w"], "w", ["z"], ["b"], [["w"]]]),
    ("auxiliary", [{"labels": one} for one in ([1.5], None, [], [float("inf")], "x", np.zeros(2, np.longdouble))]),
    ("auxiliary", [{1: [2]}, [1], {"images": np.zeros((2, 3)), "labels": [1, 2]}, {"": [1]}]),
    ("system", [{"a": float("inf")}, {"a": np.float32(1)}, {1: 2}, "x", {"round_settings": 3}]),
    ("versions", [{"a": 1}, "x", {"a": "\ud800"}]),
    ("resume_at", [0, 1, -5, 1.5, "0", 10**20, True]),
    ("parameters", [{}, [("w", (3, 4))], {"": (1,)}, {"w": ""}, {"w": None}, {1: (3, 4)}, "wb"]),
    ("parameters", [{"w": w, "b": (4,)} for w in ((0, 4), (-1, 4), (2**40, 2**40), (3, 4), [3.5], (True, 4))]),
    ("key", [torch.zeros(16), np.zeros(16), {}, [1] * 16, "\ud800" * 16]),
    ("learner", [torch.zeros(2), np.zeros(2), object(), {"name": "fncf", "arguments": torch.zeros(2)}]),
    ("data", [torch.zeros(2), object(), {"name": np.zeros(2)}, b"x"]),
    ("copy_to", [5, True, b"x", [], object(), np.zeros(3), torch.zeros(2), Path("x")]),
    ("copy_to", ["", "nothing://x", "\0", "\ud800"]),
    ("clients", [0, -1, 1.5, "2", True, [1], 10**30, np.int64(2), float("nan"), torch.tensor(2)]),
    ("folder", [None, 3, "a\0b", "/proc/self/fedleak", "/dev/null", "a" * 300, b"x"]),
]
_OPTIONS = {f"{name}={one!r}"[:60]: {name: one} for name, values in _GIVEN for one in values}
_WHOLE_TRUTHS: dict[str, Any] = {
    **{"tensor": torch.zeros(3), "array": np.zeros(3), "list": [1], "text": "x", "number": 5},
    **{"unknown": {"c9": {}}, "a number as name": {5: {}}, "a tensor of a client": {"c0": torch.zeros(2)}},
}
_ODD: dict[str, Mapping[str, Any]] = {
    **{"options": _OPTIONS, "number": _WHOLES, "examples": _WHOLES, "client": _NAMES, "array": _ARRAYS},
    **{"model array": _ARRAYS, "content": _CONTENTS, "model": _CONTENTS, "truth": _TRUTHS, "served": _SERVED},
    **{"records": _RECORDS, "record_grid": _GRIDS, "participants": _TOGETHER, "whole truth": _WHOLE_TRUTHS},
    **{"updates": {"None": None, "list": [1], "no pair": {"a": 1}, "three": {"a": (1, 2, 3)}, "text": {"a": "xy"}}},
}
"""By argument, what it may be instead."""
_OF_ROUND = ("options", "number", "model", "model array", "updates", "record_grid", "whole truth")


def whole_calls() -> Files:
    """Calls without anything odd."""
    return {"calls.json": b"[]"}


def change_calls(files: Files, draws: random.Random) -> tuple[Files, str]:
    """One to three arguments of drawn rounds and clients are odd."""
    odd: dict[tuple[str, int, int], str] = {}
    for _ in range(draws.choice([1, 1, 2, 3])):
        kind = draws.choice(list(_ODD))
        client = 0 if kind in _OF_ROUND else draws.randrange(_CLIENTS)
        odd[kind, draws.randrange(_ROUNDS), client] = draws.choice(list(_ODD[kind]))
    found = [[kind, name, place, client] for (kind, place, client), name in odd.items()]
    return {"calls.json": json.dumps(found).encode()}, str(found)


_RIGHT = ("0", "2.0", repr(2**48), "NumPy's 3", "tensor")
"""Odd whole numbers that are recorded as given; all others are refused."""


def wrong_calls(place: Path, before: Files, after: Files) -> str | None:
    """What was recorded although it could not be, or otherwise than it was given."""
    odd = json.loads(after["calls.json"])
    never = [one for one in odd if one[0] in ("number", "examples") and one[1] not in _RIGHT]
    if never and not any(one[0] == "client" for one in odd):  # a dictionary keeps one of two equal names
        return f"{never} recorded"
    return contradiction(read_tree(place.parent / "out"))


class ChangedError(Exception):
    """A refused call changed the folder, or an accepted one did not write its round."""


def record_calls(folder: Path, read: Callable[[Path], str]) -> str:
    """Makes the calls; returns what is read of the recording.

    Raises:
        InputError: the first refusal, after the rounds that are not odd have been recorded.
        ChangedError: a refused call changed the folder, or an accepted one wrote no round.
    """
    odd = {tuple(one) for one in json.loads((folder / "calls.json").read_bytes())}

    def chosen(kind: str, place: int = 0, client: int = 0) -> tuple[bool, Any]:
        name = next((one[1] for one in odd if one[0] == kind and (one[2:] == (place, client))), None)
        return (False, None) if name is None else (True, _ODD[kind][name])

    out = folder.parent / "out"
    refused: list[InputError] = []
    options = next((_OPTIONS[one[1]] for one in odd if one[0] == "options"), {})
    recorder = Recorder(**{"folder": out, "holds": "models", **options})
    for number in range(_ROUNDS):
        before = read_tree(out) if out.exists() else {}
        try:
            recorder.round(**_round(number, chosen))
            if len(list(recorder.folder.glob("rounds/*.safetensors"))) <= number - len(refused):
                raise ChangedError(f"round {number} is not there")
        except InputError as error:
            refused.append(error)
            after = read_tree(out) if out.exists() else {}
            if after != before:
                raise ChangedError(sorted(after.keys() ^ before.keys())) from error
    recorder.close()
    if refused:
        raise refused[0]
    return read(Path(options.get("folder", out)))


def _round(number: int, chosen: Callable[..., tuple[bool, Any]]) -> dict[str, Any]:
    draws = np.random.default_rng(number)

    def arrays(kind: str, client: int) -> dict[str, Any]:
        made: dict[str, Any] = {name: draws.normal(size=shape) for name, shape in _SHAPES.items()}
        is_odd, change = chosen(kind, number, client)
        return {**made, "w": change(made["w"])} if is_odd else made

    def given(kind: str, client: int, usual: Any) -> Any:
        is_odd, value = chosen(kind, number, client)
        return value if is_odd else usual

    def content(kind: str, client: int, usual: dict[str, Any]) -> Any:
        is_odd, change = chosen(kind, number, client)
        return change(usual) if is_odd else usual

    clients = [given("client", client, f"c{client}") for client in range(_CLIENTS)]
    updates = {
        name: (content("content", place, arrays("array", place)), given("examples", place, 5))
        for place, name in enumerate(clients)
    }
    odd_items, _ = chosen("served", number)
    served = {name: given("served", place, [1, 2]) for place, name in enumerate(clients)} if odd_items else None
    odd_truth, truth = chosen("whole truth", number)
    if not odd_truth:
        truth = {name: given("truth", place, {"class_counts": [1, 2]}) for place, name in enumerate(clients)}
    more: dict[str, Any] = {}
    for kind in ("records", "participants"):
        for place, name in enumerate(clients):
            is_odd, value = chosen(kind, number, place)
            if is_odd:
                more.setdefault(kind, {})[name] = value
    odd_grid, grid = chosen("record_grid", number)
    if odd_grid:
        records = {name: np.zeros((5, 3), np.float32) for name in clients}
        more |= {"record_grid": grid, "records": {**records, **more.get("records", {})}}
    return {
        **more,
        "number": given("number", 0, number),
        "model": content("model", 0, arrays("model array", 0)),
        "updates": given("updates", 0, updates),
        "truth": truth,
        "served": served,
    }
