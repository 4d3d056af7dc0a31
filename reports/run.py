"""Results of an experiment and their file, results.json."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import pandas as pd

from datamodules.io.files import write_whole
from evaluation.scores import SETTING, from_records, records, setting_of
from evaluation.summary import DIFFERENCE, RATIO, RESULT
from protocol.errors import InputError, require

FORMAT = 1
ATTACKS = ("ours", "published")
"""Roles of attacks; the other lines are comparisons."""
_LINE = ("role", "family", "question", "sees", "knows", "active", "tells")
_COLUMNS = (*RESULT, *_LINE, "paper", "source")


@dataclass(frozen=True)
class Run:
    """Results of one experiment.

    Attributes:
        experiment: name.
        command: command line.
        seed: first seed.
        commit: commit of the code.
        versions: versions of the packages.
        data: name and hash of the data.
        hardware: hardware.
        seconds: wall time.
        results: a row per line, setting and metric, see `evaluation.summary.summarise`, with the papers' values in
            ``paper`` and ``source``.
        not_run: reason by attack that could not run.
        causes: likely causes of failed attacks, see `evaluation.diagnosis.Cause`.
        differences: paired differences, see `evaluation.summary.paired_differences`.
        gate: verdict of each limit, see `evaluation.gate.Verdict`.
        read_back: keys of a table's cells that an earlier run had finished.
        details: rows of attacks' own tables by label, see `attacks.estimates.Scores.details`.
        learner_check: comparison of the learner's updates with the recorded ones, see `evaluation.learner_match`.
    """

    experiment: str
    command: str
    seed: int
    commit: str | None
    versions: dict[str, str]
    data: dict[str, str]
    hardware: str
    seconds: float
    results: pd.DataFrame
    not_run: dict[str, str] = field(default_factory=dict)
    causes: list[dict[str, Any]] = field(default_factory=list)
    differences: pd.DataFrame = field(default_factory=lambda: pd.DataFrame(columns=DIFFERENCE))
    gate: list[dict[str, Any]] = field(default_factory=list)
    read_back: list[str] = field(default_factory=list)
    details: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    learner_check: str = ""

    def write(self, directory: Path) -> Path:
        """Writes results.json, with null for NaN."""
        path = directory / "results.json"
        content = {"format": FORMAT, **{one.name: getattr(self, one.name) for one in fields(self)}}
        content["results"] = [_as_result(row) for row in records(self.results)]
        content["differences"] = [_as_difference(row) for row in records(self.differences)]
        for name in ("details", "learner_check"):
            if not content[name]:
                del content[name]
        write_whole(path, json.dumps(_without_nan(content), indent=2, allow_nan=False).encode())
        return path

    @classmethod
    def read(cls, path: Path) -> "Run":
        """Reads results.json.

        Raises:
            InputError: the file is missing, damaged or in another format.
        """
        way_out = "Give a folder written by attack.py, e.g. runs/NAME."
        require(path.is_file(), f"a results.json of format {FORMAT}", f"none in {path.parent}", way_out)
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
                way_out=way_out,
            ) from None


def _as_result(row: Mapping[str, Any]) -> dict[str, Any]:
    paper = row.get("paper")
    known = bool(row["sees"] or row["knows"])
    numbers = ("metric", "mean", "std", "n", "seconds_per_victim", "seeds")
    return {
        **{"attack": row["attack"], "setting": setting_of(row), **{name: row[name] for name in numbers}},
        **{"ci95": [row["low"], row["high"]], "baseline": row["role"] not in ATTACKS},
        "paper": None if paper is None or paper != paper else {"value": paper, "source": row["source"]},
        "threat_model": {name: row[name] for name in ("sees", "knows", "active")} if known else None,
        **{name: row[name] for name in ("family", "role", "question", "tells")},
    }


def _as_difference(row: Mapping[str, Any]) -> dict[str, Any]:
    numbers = {name: row[name] for name in ("metric", "mean", "n", "seeds")}
    named = {"attack": row["attack"], "against": row["against"], "setting": setting_of(row)}
    ratio = [row.get(name, math.nan) for name in RATIO]
    return {**named, **numbers, "ci95": [row["low"], row["high"]], "ratio": ratio}


_Kinds = Mapping[str, type | tuple[type, ...]]
_NONE = type(None)
_NUMBER = (int, float)
_OR_NAN = (int, float, _NONE)
_TEXT = (str, _NONE)
_RUN: _Kinds = {
    **{"experiment": str, "command": str, "seed": int, "commit": _TEXT, "versions": dict, "data": dict},
    **{"hardware": str, "seconds": _NUMBER, "results": list},
}
_RUN_MAY: _Kinds = {
    **{"not_run": dict, "causes": list, "differences": list, "gate": list, "read_back": list},
    **{"details": dict, "learner_check": str},
}
_DETAIL = (str, int, float, bool, _NONE)
_CELL: _Kinds = {"attack": str, "setting": dict, "metric": str, "mean": _OR_NAN, "ci95": list, "n": int}
_RESULT: _Kinds = {**_CELL, "std": _OR_NAN, "seconds_per_victim": _OR_NAN, "paper": (dict, _NONE)}
_PLAIN, _LATER = ("attack", "metric", "n"), ("seeds", "family", "role", "question", "tells")
_RESULT_MAY: _Kinds = {
    **{"seeds": int, "family": _TEXT, "baseline": bool, "threat_model": (dict, _NONE)},
    **{"role": str, "question": _TEXT, "tells": str},
}


def _run(content: dict[str, Any]) -> dict[str, Any]:
    """Arguments of `Run`; unknown keys, of another version, are dropped."""
    kept = _typed(content, _RUN, _RUN_MAY)
    for name in ("versions", "data", "not_run"):
        _typed(kept.get(name, {}), dict.fromkeys(kept.get(name, {}), str))
    _typed(kept["data"], {"name": str, "sha256": str})
    _typed(dict(enumerate(kept.get("read_back", []))), dict.fromkeys(range(len(kept.get("read_back", []))), str))
    for entry in (*kept.get("causes", []), *kept.get("gate", [])):
        _typed(entry, {})
    for label, rows in kept.get("details", {}).items():
        _typed({label: rows}, {label: list})
        for row in rows:
            _typed(row, dict.fromkeys(row, _DETAIL))
    results = [_result(entry) for entry in kept["results"]]
    differences = [_difference(entry) for entry in kept.get("differences", [])]
    return {
        **kept,
        "seconds": float(kept["seconds"]),
        "results": _table(results, _COLUMNS),
        "differences": _table(differences, DIFFERENCE),
    }


def _table(rows: list[dict[str, Any]], columns: tuple[str, ...]) -> pd.DataFrame:
    settings = dict.fromkeys(name for row in rows for name in row if name not in columns)
    return from_records(rows, [*columns, *settings]).astype({"n": "int64", "seeds": "int64"})


def _result(entry: dict[str, Any]) -> dict[str, Any]:
    kept = _typed(entry, _RESULT, _RESULT_MAY)
    paper = None if kept["paper"] is None else _typed(kept["paper"], {"value": _NUMBER, "source": str})
    model = kept.get("threat_model")
    sent = {} if model is None else _typed(model, {"sees": str, "knows": str, "active": bool})
    return {
        **{"seeds": 1, "role": "baseline" if kept.get("baseline") else "ours"},
        **{"family": None, "question": None, "sees": "", "knows": "", "active": False, "tells": ""},
        **{name: kept[name] for name in (*_PLAIN, *_LATER) if name in kept},
        **{name: _number(kept[name]) for name in ("mean", "std", "seconds_per_victim")},
        **_ends(kept["ci95"]),
        **_setting(kept["setting"]),
        **sent,
        "paper": math.nan if paper is None else float(paper["value"]),
        "source": None if paper is None else paper["source"],
    }


def _difference(entry: dict[str, Any]) -> dict[str, Any]:
    kept = _typed(entry, {**_CELL, "against": str, "seeds": int}, {"ratio": list})
    own = {name: kept[name] for name in ("attack", "against", "metric", "n", "seeds")}
    ratio = _numbers("ratio", kept.get("ratio", [None] * len(RATIO)))
    numbers = {"mean": _number(kept["mean"]), **_ends(kept["ci95"]), **dict(zip(RATIO, ratio, strict=True))}
    return {**own, **numbers, **_setting(kept["setting"])}


def _setting(setting: dict[str, Any]) -> dict[str, Any]:
    """Setting columns; values are strings, numbers or booleans."""
    for key, value in setting.items():
        if not isinstance(value, str | int | float | _NONE):
            raise TypeError(f"setting {key} {value!r:.60}")
        float(0 if value is None or isinstance(value, str) else value)  # raises for integers that are too large
    return {SETTING + key: value for key, value in setting.items()}


def _typed(entry: Mapping[Any, Any], kinds: Mapping[Any, Any], may: Mapping[Any, Any] | None = None) -> dict[Any, Any]:
    """Known entries of a JSON object, with their types checked.

    Raises:
        KeyError: an entry is missing.
        TypeError: an entry has another type; a boolean is not a number.
    """
    if not isinstance(entry, dict):
        raise TypeError(f"{entry!r:.60} instead of an object")
    kept = {key: entry[key] for key in kinds} | {key: entry[key] for key in may or {} if key in entry}
    for key, value in kept.items():
        kind = kinds.get(key) or (may or {})[key]
        if not isinstance(value, kind) or (isinstance(value, bool) and kind not in (bool, _DETAIL)):
            raise TypeError(f"{key} {value!r:.60}")
    return kept


def _number(value: float | None) -> float:
    return math.nan if value is None else float(value)


def _ends(ends: list[Any]) -> dict[str, float]:
    low, high = _numbers("ci95", ends)
    return {"low": low, "high": high}


def _numbers(name: str, values: list[Any]) -> list[float]:
    return [_number(_typed({name: value}, {name: _OR_NAN})[name]) for value in values]


def _without_nan(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nan(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
