"""What a message can carry: whatever a sender tries, no more different messages leave than the capacity says."""

import json
import math
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedleak_guard import Guard, Message, RefusedError
from fedleak_guard.capacity import lines_of, parts_of, shapes_of, total_of
from fedleak_guard.chained_log import read_log
from fedleak_guard.checks.metric_values import flattened, message_bits
from fedleak_guard.guard import Released
from fedleak_guard.known_checks import checks_to_make
from fedleak_guard.plain_message import plain_metrics
from fedleak_guard.policy import MetricLimits, read_policy
from fedleak_recorder.arrays import Array
from tests.places import ROOT

SECRET = "Jane Doe, born 1961-02-03, diagnosis C50.9"


def policy_of(folder: Path, more: str) -> Path:
    path = folder / "policy.yaml"
    path.write_text(f"format: 1\nevidence: {folder}/evidence\n{more}")
    return path


def as_bytes(released: Released) -> bytes:
    """All that distinguishes two messages that leave, object identities and types of numbers included."""
    tensors = released.tensors
    flags = [] if tensors is None else [(value.flags.c_contiguous, value.strides) for value in tensors.values()]
    parts = [(name, value.dtype.str, value.shape, value.tobytes()) for name, value in (tensors or {}).items()]
    return repr((tensors is None, parts, released.metrics, released.examples, flags)).encode()


class Changing(Mapping[str, Any]):
    """A mapping that says something else each time it is read."""

    def __init__(self, *contents: Mapping[str, Any]) -> None:
        self.contents = list(contents)

    def _next(self) -> Mapping[str, Any]:
        return self.contents.pop(0) if len(self.contents) > 1 else self.contents[0]

    def __getitem__(self, key: str) -> Any:
        return self._next()[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._next())

    def __len__(self) -> int:
        return len(self.contents[0])

    def items(self) -> Any:
        return self._next().items()


class Lying:
    """An array that says of itself what the policy allows."""

    def __init__(self, array: Array, dtype: str) -> None:
        self.array, self.dtype, self.shape = array, np.dtype(dtype), (2,)

    def __array__(self, *_: Any, **__: Any) -> Array:
        return self.array


class Text(str):
    """A text that is written as another."""

    __slots__ = ()

    def __str__(self) -> str:
        return SECRET

    __repr__ = __str__


def numbers(draws: np.random.Generator) -> Any:
    """A number in one of the many ways to hold it."""
    value = draws.choice([0, 1, -1, 2, 3, 7, 0.5, -0.0, 0.1, math.pi, 1e300, 5e-324])
    kinds: list[Callable[[Any], Any]] = [float, int, bool, np.float32, np.float16, np.longdouble, np.int8]
    if draws.random() < 0.8:
        with np.errstate(all="ignore"):
            return np.array(value) if draws.random() < 0.1 else kinds[draws.integers(5)](value)
    kinds += [str, lambda _: math.nan, lambda _: math.inf, lambda _: 2**70, lambda _: None, np.array, lambda one: [one]]
    kinds += [lambda _: [], lambda _: {}, lambda one: {"n": one}, lambda one: np.zeros((int(abs(one)) % 4, 0))]
    with np.errstate(all="ignore"):
        try:
            return draws.choice(np.array(kinds, object))(value)
        except (OverflowError, ValueError):
            return 0


def metrics(draws: np.random.Generator) -> Any:
    names = ["n", "m.a", Text("n"), "m", "free_a", "free_b", SECRET, "", ".", "\ud800", 3, True, None, "m.a.b"]
    if draws.random() < 0.8:
        names = names[:3]
    some = {draws.choice(np.array(names, object)): numbers(draws) for _ in range(draws.integers(3))}
    if draws.random() < 0.2:
        some = {"m": some}
    if draws.random() < 0.1:
        return Changing(some, {SECRET: 1}, {"n": 2})
    return some


def tensor(draws: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Any:
    """Numbers of two values in one of the many ways to hold an array."""
    base = draws.choice([0.0, -0.0, 1.0, math.nan], size=shape, p=[0.4, 0.29, 0.3, 0.01])
    with np.errstate(all="ignore"):
        array = base.astype(dtype)
    ways: list[Callable[[], Any]] = [
        lambda: array,
        lambda: np.asfortranarray(array),
        lambda: array.astype(array.dtype.newbyteorder(">")),
        lambda: array.astype(np.dtype(array.dtype.str, metadata={"text": SECRET})),
        lambda: np.repeat(array, 2, axis=0)[::2],
        lambda: array.tolist(),
        lambda: np.ma.masked_array(array),
        lambda: Lying(draws.integers(9, size=shape), dtype),
        lambda: draws.integers(256, size=shape, dtype=np.uint8).view(bool),
        lambda: array.astype(draws.choice(["f2", "f4", "f8", "i8", "?"])),
        lambda: array.reshape(-1),
        lambda: array[..., None],
        lambda: SECRET,
    ]
    likely = ways[:5] + ways[8:9]
    with np.errstate(all="ignore"):
        return draws.choice(np.array(likely if draws.random() < 0.8 else ways, object))()


SHAPES = {"b": ((2, 2), "bool"), "e": ((0, 3), "float32"), "f": ((2, 2), "float32")}


def sent(draws: np.random.Generator, names: list[str]) -> Any:
    if draws.random() < 0.1:
        return None
    names = [name for name in names if draws.random() < 0.7]
    draws.shuffle(names)
    made = {name: tensor(draws, *SHAPES[name]) for name in names}
    if draws.random() < 0.1:
        made[draws.choice([SECRET, "b2", "é"])] = np.zeros(0, np.float32)
    return Changing(made, {}, {"b": np.ones((2, 2), bool)}) if draws.random() < 0.1 else made


POLICIES = {
    "two tensors": "tensors: [{name: 'b*', dtype: bool}, {name: 'e*', dtype: float32}]\nupdate: {max_examples: 1}\n",
    "no number changes": "tensors: [{name: '*', dtype: float32}]\nupdate: {max_changed: 0.1, max_examples: 1}\n",
    "metrics": "tensors: []\nmetrics: {names: [n, 'm.a'], max_bits: 14}\nupdate: {max_examples: 1}\n",
    "wildcards": "tensors: []\nmetrics: {names: ['*'], max_bits: 26}\nupdate: {max_examples: 1}\n",
    "no metric": "tensors: [{name: b, dtype: bool}]\nupdate: {max_examples: 1}\n",
}


@pytest.mark.parametrize("name", POLICIES)
def test_no_more_messages_leave_than_the_capacity_says(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.fsync", lambda _: None)
    path = policy_of(tmp_path, POLICIES[name])
    policy, guard, draws = read_policy(path), Guard(path), np.random.default_rng(7)
    for attack in [kind for kind in checks_to_make().values() if kind.exact]:
        monkeypatch.setattr(attack, "measure", lambda *_, **__: None)
    tensors = [one for one in SHAPES if policy.rule(one)]
    received = {one: np.zeros(SHAPES[one][0], SHAPES[one][1]) for one in tensors}
    left = set[bytes]()
    for number in range(500):
        message = Message(
            job="job",
            round=number,
            sent=sent(draws, list(tensors)) if tensors else None,
            holds=draws.choice(np.array(["models", "deltas"], object)),
            received=received,
            metrics=metrics(draws) if policy.metrics.names or draws.random() < 0.1 else {},
            examples=draws.choice(
                np.array([None, 0, 1, np.int64(1), 2, -1, True, "1", 2**80][: draws.choice([4, 9])], object)
            ),
        )
        try:
            left.add(as_bytes(guard.release(message)))
        except RefusedError:
            continue
    promised = total_of(parts_of(policy, shapes_of(received)))
    assert len(left) > 8
    assert math.log2(len(left)) <= promised < 40
    assert not any(SECRET.encode()[:8] in one for one in left)
    assert {entry["event"] for entry in read_log(tmp_path / "evidence/log.jsonl")[0]} == {"released", "refused"}


def test_metrics_of_few_bits_are_as_few_as_their_bits_say() -> None:
    """All metrics of up to two values of two names, lists, and nested lists: at most 2^b have at most b bits."""
    values: list[Any] = [sign * number for number in range(64) for sign in (1, -1)]
    values += [float(number) for number in values] + [number / 10 for number in values]
    held: list[Any] = [
        *values,
        [],
        [[]],
        [[], []],
        *([value] for value in values[:12]),
        *([[value]] for value in values[:4]),
    ]
    limits = MetricLimits(names=("n", "m.a"))
    messages: list[dict[str, Any]] = [
        {},
        *({name: value} for name in ("n", "m.a") for value in held),
        *({"m": {"a": one}} for one in held),
    ]
    messages += [{"n": one, "m.a": other} for one in held[:60] for other in held[:60]]
    bits = dict[bytes, float]()
    for one in messages:
        plain = plain_metrics(one)
        bits[repr(plain).encode()] = message_bits(plain, limits)
    for most in range(1, 40):
        fit = sum(one <= most for one in bits.values())
        assert fit <= 2.0**most
    assert len(bits) > 4000


def test_the_code_of_metrics_leaves_no_message_without_its_share() -> None:
    """Kraft's sum over all numbers of a kind is at most 1, by the number of them at each length."""
    whole = sum(2 * 2.0 ** (length - 1) * 2.0 ** -(1 + math.log2(65) + length - 1) for length in range(1, 65))
    assert whole + 2 * 2.0 ** -(1 + math.log2(65)) <= 1 + 2 / 65
    decimals = (10 + sum(9 * 9 * 10.0 ** (digits - 2) * 10.0 ** -(digits - 1) for digits in range(2, 17))) / 10
    assert decimals <= 14


def encoded(text: bytes, count: int) -> Array:
    """A text as float32 numbers below 0.4, 30 bits in each: the strongest code that a norm of 10 leaves 620 numbers."""
    bits = np.unpackbits(np.frombuffer(text.ljust(count * 30 // 8 + 1, b"\0"), np.uint8))[: count * 30].reshape(
        count, 30
    )
    words = np.zeros((count, 32), np.uint8)
    words[:, 2:] = bits
    patterns = np.packbits(words, axis=1).view(">u4").ravel().astype(np.uint32)
    return np.minimum(patterns, np.float32(0.4).view(np.uint32) - 1).view(np.float32)


PAGE = (ROOT / "docs/site/guard-reference.md").read_text(encoding="utf-8")
EXAMPLE = """\
tensors:
  - {name: "*.weight", dtype: float32}
  - {name: "*.bias", dtype: float32}
update: {max_norm: 10, min_examples: 10}
metrics: {names: [train_loss, accuracy]}
"""


def tree(steps: str) -> list[Any]:
    """Empty lists in lists: ``(`` begins one and ``)`` ends it."""
    stack: list[list[Any]] = [[]]
    for step in steps:
        if step == "(":
            stack[-1].append([])
            stack.append(stack[-1][-1])
        else:
            stack.pop()
    return stack[0]


DEEP = 10


def ways_to_balance(pairs: int) -> int:
    """Number of texts that `balanced` may give."""
    ways = {0: 1}
    for _ in range(2 * pairs):
        steps: dict[int, int] = {}
        for depth, count in ways.items():
            for after in (depth - 1, depth + 1):
                if 0 <= after <= DEEP:
                    steps[after] = steps.get(after, 0) + count
        ways = steps
    return ways[0]


def balanced(pairs: int, draws: np.random.Generator) -> str:
    """A text of brackets that close."""
    steps, opened, depth = "", 0, 0
    while len(steps) < 2 * pairs:
        if depth == 0 or (opened < pairs and depth < DEEP and draws.random() < 0.5):
            steps, opened, depth = steps + "(", opened + 1, depth + 1
        else:
            steps, depth = steps + ")", depth - 1
    return steps


def test_the_strongest_sender_gets_no_more_than_promised_through_the_example_policy(tmp_path: Path) -> None:
    """A sender who fills all numbers of tensors and metrics, and the number of examples, with chosen bits."""
    path = policy_of(tmp_path, EXAMPLE + "findings: {own-records: log, own-label-counts: log}\n")
    received = {"fc.weight": np.random.default_rng(0).normal(size=(20, 30)).astype("f"), "fc.bias": np.zeros(20, "f")}
    draws = np.random.default_rng(1)
    chosen = draws.bytes(620 * 30 // 8)
    array = encoded(chosen, 620)
    doubles = [
        float(one) for one in (draws.random(16) * 2.0 ** draws.integers(-900, 900, 16)) * draws.choice([-1, 1], 16)
    ]
    # What the numbers leave of the bits, in lists that hold nothing but lists.
    structure = tree(balanced(60, draws))
    message = Message(
        job="job",
        round=0,
        sent={"fc.bias": array[600:], "fc.weight": array[:600].reshape(20, 30)},
        received=received,
        metrics={"train_loss": [*doubles[:8], structure], "accuracy": doubles[8:]},
        examples=2**31 - 1,
    )
    left = Guard(path).release(message)
    assert left.tensors is not None
    assert list(left.tensors) == ["fc.weight", "fc.bias"]
    arrived = np.concatenate([value.ravel() for value in left.tensors.values()])
    assert np.array_equal(arrived, array)
    assert left.metrics == message.metrics
    through_tensors = 620 * math.log2(2 * int(np.float32(0.4).view(np.uint32)) - 1)
    through_metrics = 16 * math.log2(2.0**64 - 2.0**54 - 1) + math.log2(ways_to_balance(60))
    parts = {part.name: part.bits for part in parts_of(read_policy(path), shapes_of(received))}
    assert 0.95 * parts["numbers of tensors"] < through_tensors <= parts["numbers of tensors"]
    assert 0.85 * parts["metrics"] < through_metrics <= parts["metrics"]
    said = f"got {through_tensors:,.0f} of {parts['numbers of tensors']:,.0f} bits through the tensors and "
    said += f"{through_metrics:,.0f} of {parts['metrics']:,.0f} through the metrics"
    assert said in " ".join(PAGE.split())


def test_the_page_has_the_capacity_of_its_policy(tmp_path: Path) -> None:
    text = PAGE.split("```yaml\nformat: 1\nevidence: /var/lib/fedleak-guard\n")[1].split("```")[0]
    parts = parts_of(read_policy(policy_of(tmp_path, text)), {"fc.weight": (20, 30), "fc.bias": (20,)})
    table = PAGE.split("| Part | At most | Because |")[1].split("* **Numbers")[0]
    rows = dict([cell.strip() for cell in line.split("|")[1:3]] for line in table.splitlines()[2:] if "|" in line)
    for part in parts:
        name = "names, order and shapes of tensors" if part.name == "names of tensors" else part.name
        assert rows[name].split()[0] == f"{part.bits:,.0f}"
    assert rows["sum"] == f"{total_of(parts):,.0f} bits"


CHANNELS: dict[str, dict[str, Any]] = {
    "key of an empty metric": {"metrics": {SECRET: {}}},
    "nested keys": {"metrics": {"loss": {SECRET: {SECRET: {}}}}},
    "tree of empty lists": {"metrics": {"loss": [[[]] if bit == "1" else [] for bit in f"{0x4A616E65:b}" * 20]}},
    "array without numbers": {"metrics": {"loss": np.zeros((123, 0))}},
    "name under a wildcard": {"metrics": {f"class_{SECRET}": 1}},
    "name of an empty tensor": {"sent": {f"{SECRET}.weight": np.zeros(0, "f")}},
    "shape of a tensor": {"sent": {"fc.weight": np.zeros((7, 11), "f")}},
    "integers that say float32": {"sent": {"fc.bias": Lying(np.arange(2), "float32")}},
    "two names that are one": {"metrics": {3: 1, "3": 2}},
    "a range that NumPy would write out": {"metrics": {"loss": range(10**15)}},
    "deep mapping": {"metrics": json.loads('{"a":' * 40 + "1" + "}" * 40)},
    "large whole number": {"metrics": {"loss": int.from_bytes(SECRET.encode(), "big")}},
    "number of examples": {"examples": int.from_bytes(SECRET.encode(), "big")},
    "text as number of examples": {"examples": SECRET},
    "kind of tensors": {"holds": SECRET},
    "round": {"round": int.from_bytes(SECRET.encode(), "big")},
    "name of the job": {"job": SECRET * 10},
}


@pytest.mark.parametrize("name", CHANNELS)
def test_a_channel_is_closed_and_the_log_says_so(tmp_path: Path, name: str) -> None:
    metrics_of = "metrics: {names: [loss, 'class_*'], max_values: 4, max_bits: 60}\n"
    path = policy_of(tmp_path, "tensors: [{name: '*.weight', dtype: float32}, {name: '*.bias'}]\n" + metrics_of)
    received = {"fc.weight": np.zeros((2, 30), "f"), "fc.bias": np.zeros(2, "f")}
    given = {"job": "job", "round": 0, "received": received, **CHANNELS[name]}
    with pytest.raises(RefusedError):
        Guard(path).release(Message(**given))
    (entry,) = read_log(tmp_path / "evidence/log.jsonl")[0]
    assert entry["event"] == "refused"
    assert entry["reasons"]


def release(folder: Path, **changes: Any) -> Released:
    """What leaves of a message of two tensors under a policy that allows it."""
    path = policy_of(folder, "tensors: [{name: '*'}]\nmetrics: {names: [loss, more]}\n")
    received = {"w": np.zeros((2, 3), "f"), "v": np.zeros((3,), "f")}
    given = {"job": "job", "round": 0, "received": received, "sent": {"w": np.ones((2, 3), "f")}, **changes}
    return Guard(path).release(Message(**given))


def test_how_numbers_are_held_does_not_leave(tmp_path: Path) -> None:
    """Order of memory, of bytes and of names, metadata of types, signed zeros, kinds of numbers."""
    array = np.arange(6, dtype="f").reshape(2, 3)
    plain = as_bytes(release(tmp_path, sent={"w": array, "v": np.zeros(3, "f")}, metrics={"loss": 0.0, "more": [1]}))
    marked = array.astype(np.dtype("f4", metadata={"text": SECRET}))
    for held in (np.asfortranarray(array), array.astype(">f4"), marked, array.tolist(), array[::-1][::-1]):
        other = release(
            tmp_path,
            sent={"v": np.full(3, -0.0, "f"), "w": held},
            metrics={"more": (np.int8(1),), "loss": np.float32(-0.0)},
        )
        assert as_bytes(other) == plain
    # A byte of a boolean array may be any of 256.
    strange = np.arange(6, dtype=np.uint8).reshape(2, 3).view(bool)
    path = policy_of(tmp_path, "tensors: [{name: w, dtype: bool}]\n")
    left = Guard(path).release(Message(job="b", round=0, sent={"w": strange}, received={"w": np.zeros((2, 3), bool)}))
    assert left.tensors is not None
    assert left.tensors["w"].view(np.uint8).max() == 1


def test_a_scalar_tensor_keeps_its_shape(tmp_path: Path) -> None:
    path = policy_of(tmp_path, "tensors: [{name: t, dtype: bool}, {name: s}]\n")
    sent_now = {"t": np.array(True), "s": np.float32(3)}
    left = Guard(path).release(Message(job="b", round=0, sent=sent_now, received=sent_now)).tensors
    assert left is not None
    assert (left["t"].shape, left["s"].shape, left["s"].dtype) == ((), (), np.dtype("f4"))


def test_what_a_message_says_a_second_time_does_not_leave(tmp_path: Path) -> None:
    sent_twice = Changing({"w": np.ones((2, 3), "f")}, {SECRET: np.ones(9, "f")})
    left = release(tmp_path, sent=sent_twice, metrics=Changing({"loss": 1.0}, {SECRET: 2.0}))
    assert left.tensors is not None
    assert list(left.tensors) == ["w"]
    assert left.metrics == {"loss": 1.0}


class Prepared(Message):
    """A message whose parts were computed before, and are others than its tensors."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.__dict__.update(changes={}, norm=0.0, tensors={SECRET: np.full(3, 1e9, "f")}, dtypes={})


def test_parts_that_a_message_computed_itself_are_not_used(tmp_path: Path) -> None:
    path = policy_of(tmp_path, "tensors: [{name: '*'}]\nupdate: {max_norm: 1}\n")
    received = {"w": np.zeros((2, 3), "f")}
    large = Prepared(job="job", round=0, received=received, sent={"w": np.full((2, 3), 9, "f")})
    with pytest.raises(RefusedError, match="update-norm"):
        Guard(path).release(large)


def test_what_another_thread_changes_meanwhile_does_not_leave(tmp_path: Path) -> None:
    """The tensors, the received model and a list of metrics change all the time; what leaves is below the limits."""
    path = policy_of(
        tmp_path, "tensors: [{name: '*'}]\nupdate: {max_norm: 2}\nmetrics: {names: [loss], max_bits: 30}\n"
    )
    guard, array, loss, stop = Guard(path), np.zeros((50, 40), "f"), [1], threading.Event()

    def change() -> None:
        while not stop.is_set():
            array[:] = 1e9
            loss[:] = [10**15]
            array[:] = 0
            loss[:] = [1]

    thread = threading.Thread(target=change)
    thread.start()
    left = 0
    try:
        for number in range(40):
            message = Message(job="j", round=number, sent={"w": array}, received={"w": array}, metrics={"loss": loss})
            try:
                released = guard.release(message)
            except RefusedError:
                continue
            assert released.tensors is not None
            assert float(np.linalg.norm(released.tensors["w"])) <= 2
            assert released.metrics["loss"][0] <= 1000
            left += 1
    finally:
        stop.set()
        thread.join()


def test_a_text_of_another_class_leaves_as_it_was_checked(tmp_path: Path) -> None:
    left = release(tmp_path, metrics={Text("loss"): 1.0})
    assert left.metrics == {"loss": 1.0}
    assert type(next(iter(left.metrics))) is str


def test_lines_say_what_is_not_bounded(tmp_path: Path) -> None:
    said = "\n".join(lines_of(read_policy(policy_of(tmp_path, EXAMPLE))))
    assert "numbers of tensors: not bounded (rules with wildcards" in said
    assert "a job: not bounded (budget.job_messages is not set)" in said
    assert "where a client fails" in said
    bounded = EXAMPLE + "budget: {job_messages: 10, site_messages: 20}\n"
    said = "\n".join(lines_of(read_policy(policy_of(tmp_path, bounded)), {"fc.weight": (20, 30), "fc.bias": (20,)}))
    assert "numbers of tensors: 19,840.0 bits (all bits of 620 numbers" in said
    assert "a message: 21,154.1 bits" in said
    assert "a job: 211,540.1 bits" in said
    logged = bounded + "findings: {metric-values: log, allowed-tensors: log, example-count: log}\n"
    logged = logged.replace("max_norm: 10", "max_norm: 10, max_examples: 100")
    parts = {part.name: part.bits for part in parts_of(read_policy(policy_of(tmp_path, logged)))}
    assert parts["metrics"] == parts["numbers of tensors"] == math.inf
    assert parts["number of examples"] > 30


@pytest.mark.parametrize(
    ("rule", "bits"),
    [
        ("{name: w, shape: [3], dtype: int8}", math.log2(1 + 2**24)),
        ("{name: w, shape: [0], dtype: int8}", 1.0),
        ("{name: w, shape: [2], dtype: bool}", math.log2(5)),
        ("{name: w, shape: [1]}", math.log2(1 + 2 * 2**16 + 2**32 + 2**64)),
        ("{name: w, shape: [-1], dtype: bool}", math.inf),
        ("{name: w, dtype: bool}", math.inf),
        ("{name: 'w*', dtype: bool}", math.inf),
    ],
)
def test_bits_of_a_tensor_by_its_rule(tmp_path: Path, rule: str, bits: float) -> None:
    policy = read_policy(policy_of(tmp_path, f"tensors: [{rule}]\n"))
    assert parts_of(policy)[0].bits == pytest.approx(bits)
    # The received model is one more choice of a shape.
    assert parts_of(policy, {"w": (4,)})[0].bits >= min(bits, 4.0)


@pytest.mark.parametrize("most", [1, 2, 7, 29])
def test_few_changes_carry_their_places_and_values(tmp_path: Path, most: int) -> None:
    rule = "tensors: [{name: w, shape: [100], dtype: float32}]\n"
    policy = read_policy(policy_of(tmp_path, f"{rule}update: {{max_changed: {most / 100}}}\n"))
    ways = 1 + sum(math.comb(100, changed) * (2**32 - 1) ** changed for changed in range(most + 1))
    assert math.log2(ways) <= parts_of(policy)[0].bits <= 1 + 1.1 * math.log2(ways)


def test_names_are_flattened_as_they_are_counted() -> None:
    assert dict(flattened({"a": {"b": 1, "c": {}}, "d": [2]})) == {"a.b": 1, "a.c": {}, "d": [2]}
