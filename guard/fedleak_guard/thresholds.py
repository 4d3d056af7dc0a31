"""Thresholds of the checks of the received model, from their values in honest rounds."""

import hashlib
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedleak_recorder.conformal import conformal_thresholds
from fedleak_recorder.errors import InputError, require
from fedleak_recorder.files import read_bounded, write_whole
from fedleak_recorder.plain_values import parse_json

RECORDS, TENSORS = "records", "tensors"
"""Keys of the log's statistics of a received model that are no check."""
_WAY_OUT = "Make it with `fedleak-guard calibrate`."


@dataclass(frozen=True, kw_only=True)
class Thresholds:
    """Largest values that are no finding.

    Attributes:
        false_positives: bound on the probability that an honest round has a finding, of all checks together.
        values: number of honest rounds that the thresholds rest on.
        source: where these come from.
        tensors: hash of the names and shapes of the model's tensors, for which alone they hold.
        records: number of own records in each round; 0 without.
        thresholds: by check.
    """

    false_positives: float
    values: int
    source: str
    tensors: str
    records: int
    thresholds: Mapping[str, float]


def calibrated(
    rounds: Sequence[Mapping[str, float]],
    *,
    false_positives: float,
    margin: float = 2.0,
    source: str,
    tensors: str,
    records: int,
) -> Thresholds:
    """Thresholds from the honest rounds that have a value of every check.

    A threshold is the largest honest value times a margin, see `fedleak_recorder.conformal`. The rounds of a training
    depend on each other and change with its progress, so that the bound needs rounds of several trainings that are as
    long.

    Args:
        rounds: value by check, of each honest round.
        false_positives: largest acceptable bound.
        margin: factor of the largest honest value, at least 1.
        source: where the rounds come from.
        tensors: hash of the model's tensors, see `tensors_of`.
        records: number of own records in each round.

    Raises:
        InputError: there are too few rounds for that bound.
    """
    # A job's first round has no round before, and lacks the statistics that compare with it.
    names = sorted(set[str]().union(*rounds))
    complete = [statistics for statistics in rounds if len(statistics) == len(names)]
    values = np.array([[statistics[name] for name in names] for statistics in complete])
    limits, bound = conformal_thresholds(
        values.reshape(len(complete), len(names)),
        false_positives,
        largest=True,
        margin=margin,
        way_out="Record more of them (received.record), simulate them (--simulate), or accept a larger "
        "--false-positives.",
    )
    require(np.isfinite(values).all(), "finite values of honest rounds", "others", "Leave the rounds out.")
    return Thresholds(
        false_positives=bound,
        values=len(complete),
        source=source,
        tensors=tensors,
        records=records,
        thresholds=dict(zip(names, map(float, limits), strict=True)),
    )


def tensors_of(model: Mapping[str, Any]) -> str:
    """SHA-256 of the names and shapes of a model's tensors."""
    # Sorted by name: the order of tensors in a message is no part of the model.
    text = json.dumps(sorted((name, list(np.shape(value))) for name, value in model.items()))
    return hashlib.sha256(text.encode()).hexdigest()


def write_thresholds(path: Path, thresholds: Thresholds) -> None:
    """Writes a file that `read_thresholds` reads."""
    write_whole(path, json.dumps({"format": 1, **asdict(thresholds)}, indent=1, allow_nan=False).encode())


def read_thresholds(path: Path) -> Thresholds:
    """Thresholds from a file.

    Raises:
        InputError: it is missing or damaged.
    """
    expected = f"thresholds of a format that is known at {path}"
    try:
        fields = parse_json(read_bounded(path, way_out=_WAY_OUT), where=str(path))
        if not isinstance(fields, dict) or fields.pop("format", None) != 1:
            raise ValueError("another format")
        thresholds = Thresholds(**fields)
        strange = _strange(thresholds)
        if strange is not None:
            raise ValueError(strange)
    except (ValueError, TypeError, AttributeError) as error:
        raise InputError(expected=expected, found=str(error)[:200], way_out=_WAY_OUT) from None
    return thresholds


def _strange(thresholds: Thresholds) -> str | None:
    """What is no threshold in a file; None if all is as `write_thresholds` writes it."""
    if not (_is_number(thresholds.false_positives) and 0 < thresholds.false_positives < 1):
        return "false_positives that are no probability"
    for name, least in (("values", 1), ("records", 0)):
        # True is an int to isinstance, and no number of rounds.
        number = getattr(thresholds, name)
        if not isinstance(number, int) or isinstance(number, bool) or number < least:
            return f"{name} that are no number from {least}"
    if not isinstance(thresholds.source, str):
        return "a source that is no text"
    if not isinstance(thresholds.tensors, str) or re.fullmatch("[0-9a-f]{64}", thresholds.tensors) is None:
        return "tensors that are no SHA-256"
    if not isinstance(thresholds.thresholds, dict) or not thresholds.thresholds:
        return "no thresholds by check"
    if not all(map(_is_number, thresholds.thresholds.values())):
        return "thresholds that are no finite numbers"
    return None


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def logged_rounds(
    entries: Sequence[Mapping[str, Any]], jobs: Sequence[str] = ()
) -> tuple[list[dict[str, float]], str, int, int]:
    """Statistics of the received models of a site's log: of the model of the last entry that has them.

    Args:
        entries: of the log.
        jobs: names of the trainings that count; empty for all.

    Returns:
        value by check of each round that left without a finding; hash of the tensors; number of own records; number of
        trainings.
    """
    honest_rounds = []
    for entry in entries:
        statistics = entry.get("statistics", {}).get("received-model")
        if entry["event"] != "released" or statistics is None:
            continue
        # A round with a finding that was only logged is no honest one.
        has_finding = entry["checks"].get("received-model", {}).get("found")
        if not has_finding and (not jobs or entry["job"] in jobs):
            honest_rounds.append((entry["job"], statistics))
    if not honest_rounds:
        return [], "", 0, 0
    _, last = honest_rounds[-1]
    tensors = last[TENSORS]
    records = int(last[RECORDS])
    values = []
    trainings = set()
    for job, statistics in honest_rounds:
        # Thresholds hold for one model and one number of records.
        if (statistics[TENSORS], statistics[RECORDS]) != (tensors, records):
            continue
        trainings.add(job)
        values.append({name: value for name, value in statistics.items() if name not in (RECORDS, TENSORS)})
    return values, tensors, records, len(trainings)
