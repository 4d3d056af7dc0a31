"""Fuzz targets: files that decide what leaves a site, or whether a training goes on: a guard's, and a verdict."""

import contextlib
import functools
import hashlib
import json
import random
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import yaml

from fedleak_guard import Guard, Message, RefusedError
from fedleak_guard.chained_log import FIRST, entry_hash, read_log
from fedleak_guard.evidence import write_evidence
from fedleak_guard.policy import read_policy
from fedleak_guard.privacy_json import CLASS, WATCH, privacy_faults
from fedleak_guard.thresholds import Thresholds, read_thresholds, tensors_of, write_thresholds
from fedleak_recorder.verdict import Action, LimitExceededError, Missing, VerdictFile, remaining
from tests.fuzz.children import AcceptedError
from tests.fuzz.mutations import change_bytes, change_value
from tests.fuzz.recordings import Files, read_tree
from tests.fuzz.user_files import Mutant, Parts, nothing_wrong
from tests.fuzz.writings import change_plain, change_type
from tests.guard_toys import SHAPES, message, model, update

_POLICY, _THRESHOLDS, _PRIVACY, _VERDICT = "policy.yaml", "thresholds.json", "privacy.json", "verdict.json"
_LOG = "evidence/log.jsonl"
_EVIDENCE = "evidence"
"""Folder of the log, below the folder in which the mutant is read."""
_HUGE = 1e6
"""Factor of an update that no policy with a limit on its norm below 1e4 may let out."""
WHOLE_POLICY: dict[str, Any] = {
    "format": 1,
    "evidence": _EVIDENCE,
    "tensors": [
        {"name": "weight", "shape": [*SHAPES["weight"]], "dtype": "float32"},
        {"name": "*", "dtype": "float32"},
    ],
    "update": {"max_norm": 10.0, "min_examples": 10, "min_changed": 0.1, "max_changed": 1.0},
    "metrics": {"names": ["loss", "accuracy"], "counts": ["accuracy"], "max_values": 4, "min_cell": 10},
    "privacy": {"clip": 1.0, "noise": 0.1, "neighbours": "add", "tensors": ["*"]},
    "budget": {"job_rounds": 100, "site_rounds": 1000, "delta": 1e-5},
    "noise": {"clip": 1.0, "scale": 0.1},
    "findings": {"declared-noise": "log", "declared-clip": "log", "release-check": "log", "update-norm": "refuse"},
    "limits": {"own-records": 0.0},
    "required": ["update-norm"],
    "received": {"frozen": [], "record": False},
}
"""A policy with every section, under which `good` leaves."""


def good(number: int = 0, **changes: Any) -> Message:
    """A message that `WHOLE_POLICY` allows."""
    sent = update(number + 1, norm=0.8, noise=0.1)
    return message(number, **{"sent": sent, "examples": 50, "metrics": {"loss": 0.5}, **changes})


@contextlib.contextmanager
def inside(folder: Path) -> Iterator[None]:
    """Makes a folder the current one, to which the policies' folder of evidence is relative."""
    with contextlib.chdir(folder):
        yield


def leaves(guard: Guard, what: Message) -> bool:
    """Whether a guard lets a message out, of which then an entry must stand in its log."""
    try:
        released = guard.release(what)
    except RefusedError:
        return False
    assert released is not None
    return True


# ---------------------------------------------------------------------------------------------------------- policy


def whole_policy() -> Files:
    return {_POLICY: yaml.safe_dump(WHOLE_POLICY, sort_keys=False).encode()}


def change_policy(files: Files, draws: random.Random) -> Mutant:
    content, said = change_plain(yaml.safe_load(files[_POLICY]), draws, as_yaml=True)
    return {_POLICY: content}, said


def read_policies(folder: Path) -> str:
    """What a policy says, and whether an honest and a huge update leave under it."""
    path = folder / _POLICY
    with inside(folder):
        policy = read_policy(path)
        for name, value in _values_of(policy):
            if type(value) not in (str, int, float, bool, type(None)):
                raise AcceptedError(f"{name} is {type(value).__name__} {value!r:.60}")
        if policy.evidence != _EVIDENCE:  # nothing is written elsewhere
            return repr(policy)
        honest = leaves(Guard(path), good())
        huge = leaves(Guard(path), good(1, sent={name: _HUGE * value for name, value in update(2).items()}))
        limit = policy.update.max_norm
        if huge and limit is not None and limit < 1e4 and policy.action("update-norm", "refuse") == "refuse":
            raise AcceptedError(f"an update of norm 1e6 under max_norm {limit}")
        _check_log(folder / _LOG, honest + huge)
        return f"{policy!r} {honest} {huge}"


def _values_of(part: Any, name: str = "policy") -> Iterator[tuple[str, Any]]:
    """All single values of a policy with their names."""
    if is_dataclass(part):
        for field in fields(part):
            yield from _values_of(getattr(part, field.name), field.name)
    elif isinstance(part, tuple):
        for one in part:
            yield from _values_of(one, name)
    elif isinstance(part, Mapping):
        for key, one in part.items():
            yield name, key
            yield from _values_of(one, f"{name}.{key}")
    else:
        yield name, part


def _check_log(log: Path, released: int) -> None:
    """Raises if a message left without an entry, or the next guard could not read the log."""
    entries, torn = read_log(log) if log.exists() else ([], 0)
    if torn or sum(entry["event"] == "released" for entry in entries) != released:
        raise AcceptedError(f"{released} messages left, and the log has {[entry['event'] for entry in entries]}")


# ------------------------------------------------------------------------------------------------------ thresholds


@functools.cache
def whole_thresholds() -> Files:
    limits = {"received-model": 1.5, "idle-units": 0.4, "loss-jump": 2.0}
    made = Thresholds(
        false_positives=0.04, values=120, source="x", tensors=tensors_of(model()), records=0, thresholds=limits
    )
    with tempfile.TemporaryDirectory() as folder:
        write_thresholds(Path(folder) / _THRESHOLDS, made)
        return read_tree(Path(folder))


def change_thresholds(files: Files, draws: random.Random) -> Mutant:
    content, said = change_plain(json.loads(files[_THRESHOLDS]), draws)
    return {_THRESHOLDS: content}, said


def read_all_thresholds(folder: Path) -> str:
    """The thresholds, each of its type, and whether a message leaves under a policy that names them."""
    made = read_thresholds(folder / _THRESHOLDS)
    kinds = {"false_positives": (int, float), "values": (int,), "source": (str,), "tensors": (str,), "records": (int,)}
    odd = [name for name, right in kinds.items() if type(getattr(made, name)) not in right]
    odd += [name for name, value in made.thresholds.items() if type(value) not in (int, float)]
    if odd:
        raise AcceptedError(f"other types of {odd}")
    policy = {"format": 1, "evidence": _EVIDENCE, "tensors": [{"name": "*"}]}
    policy["received"] = {"thresholds": str(folder / _THRESHOLDS)}
    (folder / _POLICY).write_text(yaml.safe_dump(policy))
    with inside(folder):
        left = leaves(Guard(folder / _POLICY), message())
        _check_log(folder / _LOG, left)
    return f"{made!r} {left}"


# ------------------------------------------------------------------------------------------------------------- log

_BUDGET = 5
_LOGGED = 4


@functools.cache
def whole_log() -> Files:
    """The log of four messages of a job that may send five, and its policy."""
    policy = {"format": 1, "evidence": _EVIDENCE, "tensors": [{"name": "*"}], "budget": {"job_rounds": _BUDGET}}
    with tempfile.TemporaryDirectory() as folder, inside(Path(folder)):
        Path(_POLICY).write_text(yaml.safe_dump(policy))
        guard = Guard(_POLICY, clock=lambda: 1.0e9)
        for number in range(_LOGGED):
            assert leaves(guard, message(number))
        return read_tree(Path(folder))


def change_log(files: Files, draws: random.Random) -> Mutant:
    """Other bytes, another entry, another order, or a chain that is made anew over changed entries."""
    lines = files[_LOG].splitlines(keepends=True)
    place, how = draws.randrange(len(lines)), draws.choice(["bytes", "entry", "order", "drop", "twice", "torn", "anew"])
    if how == "bytes":
        content, said = change_bytes(files[_LOG], draws, text=True)
        return {**files, _LOG: content}, said
    if how in ("entry", "anew"):
        entries = [json.loads(line) for line in lines]
        change = draws.choice([change_value, change_type])
        entries[place], said = change(entries[place], draws)
        made = chained_anew(entries) if how == "anew" else [json.dumps(one).encode() + b"\n" for one in entries]
        return {**files, _LOG: b"".join(made)}, f"{how} {said}"
    if how == "order":
        draws.shuffle(lines)
    elif how == "drop":
        del lines[place]
    elif how == "twice":
        lines.insert(place, lines[place])
    else:
        lines.append(lines[0][: draws.randrange(1, len(lines[0]) - 1)])
    return {**files, _LOG: b"".join(lines)}, f"{how} {place}"


def chained_anew(entries: list[Any]) -> list[bytes]:
    """Lines of entries whose numbers and hashes fit, as whoever may write the folder can make them."""
    head, lines = FIRST, []
    for number, entry in enumerate(entries):
        whole = {**entry, "number": number, "previous": head}
        whole["hash"] = head = entry_hash(whole)
        lines.append(json.dumps(whole, allow_nan=False).encode() + b"\n")
    return lines


def read_logs(folder: Path) -> str:
    """How many further messages leave, and the two summaries of the log."""
    log = folder / _LOG
    content = log.read_bytes()
    whole = is_chain(content)
    with inside(folder):
        guard = Guard(_POLICY)
        left = [leaves(guard, message(_LOGGED + number)) for number in range(_BUDGET + 1)].count(True)
        if left and not whole:
            raise AcceptedError(f"{left} messages left although the chain is broken")
        kept = whole_log()[_LOG].splitlines(keepends=True)
        lines = [line for line in content.splitlines(keepends=True) if line.endswith(b"\n")]
        most = _BUDGET - len(lines) if lines == kept[: len(lines)] else _BUDGET
        if left > most:
            raise AcceptedError(f"{left} messages left, of a budget of {most}")
        write_evidence(log, 1e-5)
        summaries = [json.loads((log.parent / name).read_bytes()) for name in ("egress.json", "attack_results.json")]
    if len(read_log(log)[0]) < left:
        raise AcceptedError("fewer entries than messages that left")
    return f"{left} {summaries[0]['messages']} {len(summaries[1])}"


def is_chain(content: bytes) -> bool:
    """Whether a log's whole lines are a chain, by the page's description and not by the guard's code."""
    head = FIRST
    for number, line in enumerate(content[: content.rfind(b"\n") + 1].split(b"\n")[:-1]):
        try:
            entry = json.loads(line)
            rest = {key: value for key, value in entry.items() if key != "hash"}
            text = json.dumps(rest, sort_keys=True, separators=(",", ":"))
            right = (entry["number"], entry["previous"]) == (number, head)
            right &= entry["hash"] == hashlib.sha256(text.encode()).hexdigest()
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            return False
        if not right:
            return False
        head = entry["hash"]
    return True


# ---------------------------------------------------------------------------------------------------- privacy.json


_OUT = ("out", "inout", "OUT", "INOUT", None, "")
"""Directions of a filter that sees results."""


def whole_privacy() -> Files:
    own = {"policy": f"/{_POLICY}"}
    check = {"path": CLASS, "direction": "out", "args": own}
    scopes = [{"name": name, "task_result_filters": [check]} for name in ("private", "public")]
    content = {
        **{"scopes": scopes, "default_scope": "private"},
        "components": [{"id": "guard", "path": WATCH, "args": own}],
    }
    return {_PRIVACY: json.dumps(content, indent=1).encode(), _POLICY: whole_policy()[_POLICY]}


def change_privacy(files: Files, draws: random.Random) -> Mutant:
    content, said = change_plain(json.loads(files[_PRIVACY]), draws)
    return {**files, _PRIVACY: content}, said


def read_privacy(folder: Path) -> str:
    """The faults of the file; none is right only if every scope has the filter and the site the component."""
    path = folder / _PRIVACY
    content = path.read_bytes().replace(f"/{_POLICY}".encode(), f"{folder}/{_POLICY}".encode())
    path.write_bytes(content)
    faults = [fault.replace(str(folder), "") for fault in privacy_faults(path)]
    if not faults and not _is_guarded(json.loads(content)):
        raise AcceptedError("a scope without the filter, or no scope")
    return repr(faults)


def _is_guarded(content: Any) -> bool:
    """Whether every scope has the filter and the site the component, each of the form that NVFlare reads."""
    try:
        filters = [scope["task_result_filters"] for scope in content["scopes"]]
        leaving = [[one["path"] for one in held if one.get("direction", "out") in _OUT] for held in filters]
        guarded = bool(leaving) and all(CLASS in paths for paths in leaving)
        return guarded and any(one["path"] == WATCH for one in content["components"])
    except (TypeError, KeyError, AttributeError):
        return False


# --------------------------------------------------------------------------------------------------------- verdict


def _verdict(overall: str, outcome: str) -> dict[str, Any]:
    limit = {"limit": "linkability/auc", "at": 0.6, "attack": "a", "value": 0.7, "low": 0.65, "high": 0.8, "n": 40}
    limit |= {"verdict": outcome, "rounds": 5, "clients": [1, 2, 3]}
    other = {**limit, "limit": "composition/l1", "attack": "b", "verdict": "kept", "clients": []}
    time = "2026-11-27T00:00:00+00:00"
    return {"format": 1, "run": "x" * 32, "round": 4, "overall": overall, "time": time, "limits": [limit, other]}


_VERDICTS = {"exceeded": _verdict("exceeded", "exceeded"), "ok": _verdict("ok", "kept")}
_VERDICTS["unknown"] = _verdict("unknown", "unmeasured")
_ACTIONS: tuple[Action, ...] = ("log", "drop", "stop")
_MISSING: tuple[Missing, ...] = ("open", "closed")


def whole_verdict(overall: str) -> Files:
    return {_VERDICT: json.dumps(_VERDICTS[overall], indent=1).encode()}


def change_verdict(files: Files, draws: random.Random) -> Mutant:
    content, said = change_plain(json.loads(files[_VERDICT]), draws)
    return {_VERDICT: content}, said


def read_verdicts(folder: Path) -> str:
    """What the server does before round 5, by what a limit that is exceeded does and by what a missing verdict does."""
    path = folder / _VERDICT
    outcomes = _outcomes(path.read_bytes())
    decisions = []
    for action in _ACTIONS:
        for missing in _MISSING:
            file = VerdictFile(path, on_exceeded=action, missing=missing, wait_s=0)
            file.before(0)
            decision = file.before(5)
            with contextlib.suppress(LimitExceededError):
                remaining(["1", "2"], decision, b"k" * 32)
            # An exceeded limit ends the training; without a verdict that names each limit as kept, `closed` does.
            if action == "stop" and "exceeded" in outcomes and not (decision.stop or decision.reason):
                raise AcceptedError(f"the training goes on although limits are {sorted(outcomes)}")
            goes_on = action != "log" and not (decision.stop or decision.dropped)
            if missing == "closed" and goes_on and not (outcomes and outcomes <= {"kept", "open"}):
                raise AcceptedError(f"closed, and the training goes on with limits {sorted(outcomes)}")
            decisions.append((action, missing, decision.stop, sorted(decision.dropped)))
    return repr(decisions)


def _outcomes(content: bytes) -> set[str]:
    """Outcomes of the limits of a verdict; empty if it cannot be read as one of format 1."""
    with contextlib.suppress(ValueError, TypeError, KeyError, AttributeError, RecursionError):
        held = json.loads(content)
        if held["format"] == 1 and not isinstance(held["format"], bool):
            return {str(one["verdict"]) for one in held["limits"]}
    return set()


def targets() -> list[Parts]:
    """Files of a site, then the verdicts that a server reads."""
    found: list[Parts] = [
        ("policy of a guard", whole_policy, change_policy, read_policies, nothing_wrong),
        ("thresholds of a guard", whole_thresholds, change_thresholds, read_all_thresholds, nothing_wrong),
        ("log of a guard", whole_log, change_log, read_logs, nothing_wrong),
        ("privacy.json", whole_privacy, change_privacy, read_privacy, nothing_wrong),
    ]
    for overall in _VERDICTS:
        whole = functools.partial(whole_verdict, overall)
        found.append((f"verdict {overall}", whole, change_verdict, read_verdicts, nothing_wrong))
    return found
