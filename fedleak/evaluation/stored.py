"""Stored evaluation: the JSON of what a report needs, of a cell and of a run alike."""

import base64
import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from fedleak.core.errors import InputError, require
from fedleak.core.io.files import write_whole
from fedleak.core.provenance import hashed
from fedleak.core.reconstruction import Reconstruction
from fedleak.evaluation.captioned_figure import CaptionedFigure
from fedleak.evaluation.evaluation import Evaluation
from fedleak.evaluation.stored_kinds import (
    check_curve,
    check_shape,
    labels_of,
    line_of,
    profiles_of,
    reasons_of,
    reasons_to_plain,
    scores_of,
    table_of,
    texts_of,
)
from fedleak.evaluation.stored_run import StoredRun as StoredRun

EVALUATION = "evaluation.json"
"""Name of the file in the folder of a run."""
FORMAT = 2
_REASONS = ("missing", "unrelated", "not_under_defences")
_BODY = ("scores", "lines", "roc", *_REASONS, "pictures", "figures", "profiles", "details", "labels")


class DamagedError(Exception):
    """A stored evaluation with other bytes than were written, or of another version; the message has the reason."""


def write_evaluation(path: Path, evaluation: Evaluation, **more: Any) -> None:
    """Writes an evaluation, without candidates, in one step; the checksum covers further entries too."""
    body = {
        "scores": _columns(evaluation.scores),
        "lines": {label: dataclasses.asdict(line) for label, line in evaluation.lines.items()},
        "roc": {label: [rates.tolist(), count] for label, (rates, count) in evaluation.roc.items()},
        **{name: reasons_to_plain(getattr(evaluation, name)) for name in _REASONS},
        "pictures": {label: [_pixels(p.originals), _pixels(p.found)] for label, p in evaluation.pictures.items()},
        "figures": [figure.record() for figure in evaluation.figures],
        "profiles": _columns(evaluation.profiles),
        "details": {label: _columns(table) for label, table in evaluation.details.items()},
        "labels": {printed: dataclasses.asdict(label) for printed, label in evaluation.labels.items()},
        **more,
    }
    write_whole(path, json.dumps({"format": FORMAT, "sha256": hashed(body), **body}).encode())


def read_evaluation(path: Path, *, own: bool = False) -> tuple[Evaluation, dict[str, Any]]:
    """An evaluation, and the further entries of its file.

    Args:
        path: the file.
        own: whether this program wrote it on this machine, as a cell of a table; else its figures are those of a
            stranger, because the checksum needs no key.

    Raises:
        FileNotFoundError: there is no file.
        DamagedError: it is damaged, or another version's.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content.pop("format") != FORMAT:
            raise ValueError("another format")
        whole = content.pop("sha256") == hashed(content)
        more = {key: value for key, value in content.items() if key not in _BODY}
        found = _evaluation(content, own), {**more, "data": texts_of(more.get("data", {}))}
    except FileNotFoundError:
        raise
    except (
        OSError,
        ValueError,
        TypeError,
        KeyError,
        AttributeError,
        OverflowError,
        RecursionError,
        RuntimeError,
    ) as error:
        reason = f"damaged, or another version's ({type(error).__name__}: {error!s:.60})"
        raise DamagedError(reason) from None
    if not whole:
        raise DamagedError("damaged (other bytes than were written)")
    return found


def read_run(directory: Path) -> StoredRun:
    """The run that ``fedleak`` wrote into a folder.

    Raises:
        InputError: there is none, or it is damaged.
    """
    path, way_out = (
        directory / EVALUATION,
        "Give a folder that fedleak audit, run or reproduce wrote, or write it anew.",
    )
    require(path.is_file(), f"a folder with {EVALUATION}", f"none in {directory}", way_out)
    try:
        evaluation, more = read_evaluation(path)
    except DamagedError as error:
        found = f"one that is {error} in {directory}"
        raise InputError(expected=f"{EVALUATION} as fedleak writes it", found=found, way_out=way_out) from None
    return StoredRun(directory.resolve().name, evaluation, more["data"])


def _evaluation(body: Mapping[str, Any], own: bool) -> Evaluation:
    figure_of = CaptionedFigure.of_record if own else CaptionedFigure.of_stranger
    return Evaluation(
        scores=scores_of(body["scores"]),
        lines={label: line_of(fields) for label, fields in body["lines"].items()},
        roc={label: _curve(rates, count) for label, (rates, count) in body["roc"].items()},
        missing=reasons_of(body["missing"]),
        unrelated=reasons_of(body.get("unrelated", {})),
        not_under_defences=reasons_of(body.get("not_under_defences", {})),
        pictures={label: Reconstruction(*map(_images, both)) for label, both in body["pictures"].items()},
        figures=[figure_of(figure) for figure in body["figures"]],
        profiles=(table_of if own else profiles_of)(body["profiles"]),
        details={label: table_of(columns) for label, columns in body["details"].items()},
        labels=labels_of(body),
    )


def _curve(rates: list[float], count: int) -> tuple[NDArray[np.float64], int]:
    check_curve(rates, count)
    return np.array(rates, dtype=np.float64), count


def _pixels(images: ArrayLike) -> dict[str, Any]:
    """Shape and values of images in [0, 1], in eight bits."""
    values = (np.asarray(images).clip(0, 1) * 255).round().astype(np.uint8)
    return {"shape": list(values.shape), "base64": base64.b64encode(values.tobytes()).decode()}


def _images(pixels: Mapping[str, Any]) -> NDArray[np.float32]:
    check_shape(pixels["shape"])
    values = np.frombuffer(base64.b64decode(pixels["base64"]), dtype=np.uint8)
    return values.reshape(pixels["shape"]).astype(np.float32) / np.float32(255)


def _columns(table: pd.DataFrame) -> dict[str, Any]:
    """Types and values by column; JSON distinguishes 1, 1.0, "1" and null."""
    return {str(name): [str(column.dtype), column.tolist()] for name, column in table.items()}
