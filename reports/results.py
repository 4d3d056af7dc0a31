"""What a run leaves for other programs: results.json and victims.csv."""

import dataclasses
import json
import math
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
    """One cell: an attack in a setting, summarised over victims and seeds.

    Attributes:
        attack: name of the attack.
        setting: what distinguishes the cell; always holds ``data``.
        metric: lower-case name.
        mean: mean over victims.
        std: standard deviation over victims.
        ci95: bootstrap interval of the mean.
        n: victims that have a value.
        seconds_per_victim: time of the attack.
        paper: the paper's number, None where it has none.
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
            version = content.pop("format")
            if version != FORMAT:
                raise ValueError(f"format {version!r}")
            return cls(**{**content, "results": [_result(entry) for entry in content["results"]]})
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            raise InputError(
                expected=f"a results.json of format {FORMAT}",
                found=f"{error} in {path}",
                way_out="Give a folder that attack.py wrote, e.g. runs/NAME.",
            ) from None


def write_victims(path: Path, rows: list[VictimRow]) -> None:
    """Writes one line per victim and metric."""
    frame = pd.DataFrame([{**dataclasses.asdict(row), "setting": json.dumps(row.setting)} for row in rows])
    write_whole(path, frame.to_csv(index=False).encode())


def _result(entry: dict[str, Any]) -> Result:
    numbers = {key: math.nan if entry[key] is None else entry[key] for key in ("mean", "std", "seconds_per_victim")}
    low, high = (math.nan if end is None else end for end in entry["ci95"])
    paper = None if entry["paper"] is None else Paper(**entry["paper"])
    return Result(**{**entry, **numbers, "ci95": (low, high), "paper": paper})


def _without_nan(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nan(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
