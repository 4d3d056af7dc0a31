"""Hostile messages of federated trees: ``python -m tests.fuzz.tree_messages COUNT SEED`` reads them with 1 GiB.

A process of its own, which imports NumPy and the recorder alone, may take 1 GiB of addresses; whoever needs more gets a
MemoryError, which counts as a traceback.
"""

import copy
import json
import random
import resource
import sys
import time
from collections import Counter
from typing import Any

import numpy as np

from fedleak_recorder.errors import InputError
from fedleak_recorder.trees import read_forest
from fedleak_recorder.trees.forest import LEFT, PADDING
from tests.tree_toys import as_ubj, model_values

MOST_MEMORY = 2**30
SLOWEST = 20.0
"""Seconds of processor time that one message may take: a hang takes longer, whatever else the machine runs."""
_STRANGE: tuple[Any, ...] = (
    *(None, True, -1, -2, 0, 1, 7, 2**31, 2**63, 10**300, 10**5000, 1e308, -0.5),
    *("", "NaN", "1e999", "[5E-1]", "9" * 5000, "\ud800", "a" * 10**6, [], {}, [[]], [{}], [None], ["1"]),
    *([0] * 300, [0] * 3 * 10**5, [-1], [1e300], {"trees": []}),
)
"""Values that take the place of another one."""
_BRUTAL = (
    (b"", b"[", 10**6, b""),
    (b"", b'{"a":', 10**6, b""),
    (b'{"":[', b"[],", 10**7, b"1]}"),
    (b'{"":[', b"{},", 10**7, b"1]}"),
    (b'{"":', b'{"":0,', 10**6, b""),
    (b'{"":"', "é".encode(), 10**7, b'"}'),
    (b'{"":"' + "😀".encode(), b"a", 6 * 10**7, b'"}'),
    (b'{"":', b"1", 10**6, b"}"),
    (b'{"":[', b"1,", 2**24, b"1]}"),
    (b'{"":[', b"1.5,", 2 * 10**6 - 9, b"1]}"),
    (b'{"":[', b'"a",', 2 * 10**6 - 9, b"1]}"),
    (b'{"":[', b"{},", 10**6, b"1]}"),
    (b"{i\x01a[$U#L" + (6 * 10**7).to_bytes(8, "big"), b"\x01", 6 * 10**7, b"}"),
    (b"{i\x01a[", b"[", 10**6, b""),
    (b"{i\x01a[", b"{}", 10**6, b"]}"),
    (b"{i\x01a[", b"{i\x00Z}", 19 * 10**4, b"]}"),
    (b"{i\x01aSL", b"\x7f", 8, b""),
    (b"{", b"i\x00", 10**6, b"}"),
)
"""Files that ask for depth, memory or time: a beginning, what is repeated, how often, and an end."""


def hostile_message(rng: random.Random) -> bytes:
    """A message that a stranger may send."""
    if rng.random() < 0.05:
        beginning, unit, count, end = rng.choice(_BRUTAL)
        return beginning + unit * count + end
    values = model_values(rng.choice([(2, 1, 0), (3,), ()]), seed=rng.randrange(100))
    for _ in range(rng.choice([0, 1, 1, 2, 3])):
        _change(values, rng)
    content = _written(values, rng)
    if rng.random() < 0.5:
        content = _damaged(content, rng)
    return content


def _written(values: Any, rng: random.Random) -> bytes:
    if rng.random() < 0.5:
        try:
            return as_ubj(values)
        except Exception:  # UBJ has no form for some of the strange values
            pass
    try:
        return json.dumps(values).encode()
    except ValueError:  # a number of too many digits
        return b"{}"


def _change(values: Any, rng: random.Random) -> None:
    """Puts a strange value, or one from elsewhere, into the place of a value, or repeats it often."""
    place = values
    while isinstance(place, dict | list) and place:
        key = rng.choice(list(place) if isinstance(place, dict) else range(len(place)))
        inner = place[key]
        if not isinstance(inner, dict | list) or not inner or rng.random() < 0.2:
            if isinstance(inner, list) and rng.random() < 0.3:
                # Lists of numbers alone are repeated often, so that the message itself stays small.
                is_flat = not any(isinstance(entry, dict | list | str) for entry in inner)
                place[key] = inner * (rng.choice([2, 100, 10**4]) if is_flat and len(inner) < 100 else 2)
            elif isinstance(place, dict) and rng.random() < 0.2:
                del place[key]
            else:
                place[key] = copy.copy(rng.choice(_STRANGE))
            return
        place = inner


def _damaged(content: bytes, rng: random.Random) -> bytes:
    """Bytes that are changed, cut out, repeated, or replaced by a large size."""
    changed = bytearray(content)
    for _ in range(rng.choice([1, 1, 2, 8])):
        at = rng.randrange(len(changed))
        kind = rng.randrange(5)
        if kind == 0:
            changed[at] = rng.randrange(256)
        elif kind == 1:
            del changed[at : at + rng.randrange(1, 50)]
        elif kind == 2:
            changed[at:at] = changed[at : at + rng.randrange(1, 200)] * rng.choice([1, 10, 1000])
        elif kind == 3:
            changed[at : at + 9] = b"L" + rng.choice([2**31, 2**63 - 1, 2**64 - 1, 2**24]).to_bytes(8, "big")
        else:
            del changed[at:]
        if not changed:
            return b""
    return bytes(changed)


def read_all(count: int, seed: int) -> Counter[str]:
    """How many messages were read, and refused; anything else is raised.

    Raises:
        AssertionError: a forest that was read does not fit the layout, or a message took too long.
    """
    answers: Counter[str] = Counter()
    for number in range(count):
        content = hostile_message(random.Random(f"{seed}-{number}"))
        start = time.process_time()
        try:
            forest = read_forest(content)
        except InputError:
            answers["refused"] += 1
        else:
            answers["read"] += 1
            _check(forest.trees)
        seconds = time.process_time() - start
        assert seconds < SLOWEST, f"message {number} took {seconds:.1f} s"
        answers["slowest, ms"] = max(answers["slowest, ms"], round(1000 * seconds))
    return answers


def _check(trees: np.ndarray[Any, Any]) -> None:
    assert trees.dtype == np.float32
    assert np.isfinite(trees).all()
    left = trees[:, :, LEFT]
    place = np.arange(trees.shape[1])
    assert np.all((left > place) | (left == -1) | (left == PADDING))


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
    outcome = read_all(int(sys.argv[1]), int(sys.argv[2]))
    outcome["peak memory, MiB"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(json.dumps(outcome))
