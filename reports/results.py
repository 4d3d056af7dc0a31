"""What a run leaves for other programs: results.json and victims.csv."""

import dataclasses
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from datamodules.recording_format import write_whole
from errors import InputError

FORMAT = 1


@dataclass(frozen=True)
class Paper:
    """What a paper reports for a cell.

    Attributes:
        value: the number.
        source: paper and table.
    """

    value: float
    source: str


@dataclass(frozen=True)
class Result:
    """One cell: an attack in a setting, summarised over people and seeds.

    Attributes:
        attack: name of the attack.
        setting: what distinguishes the cell; always holds ``data``.
        metric: lower-case name.
        mean: mean over people and seeds.
        std: standard deviation over people.
        ci95: interval of the mean over people and seeds, see `reports.intervals.summarise`.
        n: people that have a value.
        seconds_per_victim: time of the attack.
        paper: the paper's number, None where it has none.
        seeds: trainings that they have values under.
        family: the question that the attack answers, None where it is no attack.
        baseline: whether it is what an attack must beat, or a line that reads no update.
        threat_model: what the attacker ``sees`` and ``knows``, and whether it is ``active``; None where unknown.
    """

    attack: str
    setting: dict[str, Any]
    metric: str
    mean: float
    std: float
    ci95: tuple[float, float]
    n: int
    seconds_per_victim: float
    paper: Paper | None = None
    seeds: int = 1
    family: str | None = None
    baseline: bool = False
    threat_model: dict[str, Any] | None = None


@dataclass(frozen=True)
class Difference:
    """An attack's score minus another's, on the same people under the same seeds.

    Attributes:
        attack: name of the attack.
        against: the other.
        setting: of both.
        metric: lower-case name.
        mean: mean difference.
        ci95: its interval over people and seeds.
        n: people that both have a value of.
        seeds: trainings that they have values under.
    """

    attack: str
    against: str
    setting: dict[str, Any]
    metric: str
    mean: float
    ci95: tuple[float, float]
    n: int
    seeds: int


@dataclass(frozen=True)
class VictimRow:
    """One victim's score: a line of victims.csv.

    Attributes:
        attack: name of the attack.
        setting: the cell's setting.
        seed: seed of the training.
        round: communication round.
        victim: pseudonym.
        items: number of served items.
        positives: number of those interacted with.
        metric: lower-case name.
        value: the score, NaN where the victim has one class only.
        seconds: time of the attack on this victim.
        person: the number that a person has under every seed, where a pseudonym hides it; None where ``victim`` is one.
        influence: what stands for the person where an interval is drawn, because its part in others' values belongs to
            it; the mean over people is the same. None where a value depends on nobody else.
    """

    attack: str
    setting: dict[str, Any]
    seed: int
    round: int
    victim: int
    items: int
    positives: int
    metric: str
    value: float
    seconds: float
    person: int | None = None
    influence: float | None = None


@dataclass(frozen=True)
class Profile:
    """One victim's composition, true and inferred.

    Attributes:
        attack: name of the attack.
        setting: the cell's setting.
        seed: seed of the training.
        round: communication round.
        victim: pseudonym.
        classes: true share, inferred share and both ends of its interval (NaN for none) of every class.
    """

    attack: str
    setting: dict[str, Any]
    seed: int
    round: int
    victim: int
    classes: list[list[float]]


@dataclass(frozen=True)
class Run:
    """Everything about one experiment.

    Attributes:
        experiment: its name.
        command: what was typed.
        seed: first seed.
        commit: the code's commit.
        versions: packages.
        data: name and hash of the data.
        hardware: what it ran on.
        seconds: wall time.
        results: the cells.
        not_run: by attack that could not run, what it lacks.
        causes: of attacks that told hardly more than guessing: ``attack``, ``setting``, ``metric``, ``cause``, ``told``
            and what was ``measured``.
        differences: attacks against guesses and published attacks, on the same people.
        gate: of a gate each limit's verdict, see `reports.gate.Verdict`.
        read_back: keys of a table's cells that an earlier run had finished.
    """

    experiment: str
    command: str
    seed: int
    commit: str | None
    versions: dict[str, str]
    data: dict[str, str]
    hardware: str
    seconds: float
    results: list[Result] = field(default_factory=list)
    not_run: dict[str, str] = field(default_factory=dict)
    causes: list[dict[str, Any]] = field(default_factory=list)
    differences: list[Difference] = field(default_factory=list)
    gate: list[dict[str, Any]] = field(default_factory=list)
    read_back: list[str] = field(default_factory=list)

    def write(self, directory: Path) -> Path:
        """Writes results.json; NaN becomes null."""
        path = directory / "results.json"
        content = _without_nan({"format": FORMAT, **dataclasses.asdict(self)})
        write_whole(path, json.dumps(content, indent=2, allow_nan=False).encode())
        return path

    @classmethod
    def read(cls, path: Path) -> "Run":
        """Reads results.json.

        Raises:
            InputError: the file is missing, damaged or of another format.
        """
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            version = content["format"]
            if version != FORMAT:
                raise ValueError(f"format {version!r:.40}")
            return cls(**_run(content))
        except (OSError, ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError) as error:
            raise InputError(
                expected=f"a results.json of format {FORMAT}",
                found=f"{type(error).__name__}: {error!s:.200} in {path}",
                way_out="Give a folder that attack.py wrote, e.g. runs/NAME.",
            ) from None


def write_victims(path: Path, rows: list[VictimRow]) -> None:
    """Writes one line per victim and metric."""
    frame = pd.DataFrame([{**dataclasses.asdict(row), "setting": json.dumps(row.setting)} for row in rows])
    write_whole(path, frame.to_csv(index=False).encode())


_Kinds = Mapping[str, type | tuple[type, ...]]
_NONE = type(None)
_NUMBER = (int, float)
_OR_NAN = (int, float, _NONE)
_RUN: _Kinds = {
    **{"experiment": str, "command": str, "seed": int, "commit": (str, _NONE), "versions": dict, "data": dict},
    **{"hardware": str, "seconds": _NUMBER, "results": list},
}
_RUN_MAY: _Kinds = {"not_run": dict, "causes": list, "differences": list, "gate": list, "read_back": list}
_CELL: _Kinds = {"attack": str, "setting": dict, "metric": str, "mean": _OR_NAN, "ci95": list, "n": int}
_RESULT: _Kinds = {**_CELL, "std": _OR_NAN, "seconds_per_victim": _OR_NAN, "paper": (dict, _NONE)}
_RESULT_MAY: _Kinds = {"seeds": int, "family": (str, _NONE), "baseline": bool, "threat_model": (dict, _NONE)}


def _run(content: dict[str, Any]) -> dict[str, Any]:
    """What `Run` takes; keys that it does not know are another version's, and left out."""
    kept = _typed(content, _RUN, _RUN_MAY)
    for name in ("versions", "data", "not_run"):
        _typed(kept.get(name, {}), dict.fromkeys(kept.get(name, {}), str))
    _typed(kept["data"], {"name": str, "sha256": str})
    _typed(dict(enumerate(kept.get("read_back", []))), dict.fromkeys(range(len(kept.get("read_back", []))), str))
    for entry in (*kept.get("causes", []), *kept.get("gate", [])):
        _typed(entry, {})
    return {
        **kept,
        "results": [_result(entry) for entry in kept["results"]],
        "differences": [_difference(entry) for entry in kept.get("differences", [])],
    }


def _result(entry: dict[str, Any]) -> Result:
    kept = _typed(entry, _RESULT, _RESULT_MAY)
    numbers = {key: _number(kept[key]) for key in ("mean", "std", "seconds_per_victim")}
    paper = None if kept["paper"] is None else Paper(**_typed(kept["paper"], {"value": _NUMBER, "source": str}))
    if kept.get("threat_model") is not None:
        kept["threat_model"] = _typed(kept["threat_model"], {"sees": str, "knows": str, "active": bool})
    return Result(**{**kept, **numbers, "ci95": _ends(kept["ci95"]), "paper": paper})


def _difference(entry: dict[str, Any]) -> Difference:
    kept = _typed(entry, {**_CELL, "against": str, "seeds": int})
    return Difference(**{**kept, "mean": _number(kept["mean"]), "ci95": _ends(kept["ci95"])})


def _typed(entry: Mapping[Any, Any], kinds: Mapping[Any, Any], may: Mapping[Any, Any] | None = None) -> dict[Any, Any]:
    """The known entries of a JSON object.

    Raises:
        KeyError: one is missing.
        TypeError: one is of another type; a yes or no is no number.
    """
    if not isinstance(entry, dict):
        raise TypeError(f"{entry!r:.60} where an object is wanted")
    kept = {key: entry[key] for key in kinds} | {key: entry[key] for key in may or {} if key in entry}
    for key, value in kept.items():
        kind = kinds.get(key) or (may or {})[key]
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise TypeError(f"{key} {value!r:.60}")
    return kept


def _number(value: float | None) -> float:
    return math.nan if value is None else float(value)


def _ends(ends: list[Any]) -> tuple[float, float]:
    low, high = (_typed({"end of ci95": end}, {"end of ci95": _OR_NAN})["end of ci95"] for end in ends)
    return _number(low), _number(high)


def _without_nan(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nan(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
