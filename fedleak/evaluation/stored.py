"""Stored evaluation: the JSON of what a report needs, of a cell and of a run alike, with a checksum."""

import base64
import dataclasses
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from pydantic import ValidationError

from fedleak.core.io.files import write_whole
from fedleak.core.provenance import hashed
from fedleak.core.reconstruction import Reconstruction
from fedleak.evaluation.captioned_figure import CaptionedFigure
from fedleak.evaluation.evaluation import Evaluation
from fedleak.evaluation.reasons import Reason, reason_to_plain
from fedleak.evaluation.stored_kinds import EvaluationParts, Pixels, profiles_of, scores_of, table_of

EVALUATION = "evaluation.json"
"""Name of the file in the folder of a run."""
FORMAT = 3
"""Version of the files that are written."""
_Parts = TypeVar("_Parts", bound=EvaluationParts)
_REASONS = ("missing", "unrelated", "not_under_defences")
"""Reasons by attack of an evaluation."""


class DamagedError(Exception):
    """A stored evaluation with other bytes than were written, or of another version; the message has the reason."""


class OtherFormatError(DamagedError):
    """A stored evaluation of another version."""


def write_evaluation(path: Path, evaluation: Evaluation, **more: Any) -> None:
    """Writes an evaluation, without candidates, in one step; the checksum covers further entries too."""
    content: dict[str, Any] = {
        "scores": _columns(evaluation.scores),
        "lines": {label: dataclasses.asdict(info) for label, info in evaluation.lines.items()},
        "roc": {label: [rates.tolist(), count] for label, (rates, count) in evaluation.roc.items()},
    }
    for name in _REASONS:
        content[name] = _plain_reasons(getattr(evaluation, name))
    pictures = {}
    for label, reconstruction in evaluation.pictures.items():
        pictures[label] = [_pixels(reconstruction.originals), _pixels(reconstruction.found)]
    content |= {
        "pictures": pictures,
        "figures": [figure.record() for figure in evaluation.figures],
        "profiles": _columns(evaluation.profiles),
        "details": {label: _columns(table) for label, table in evaluation.details.items()},
        "labels": {printed: dataclasses.asdict(label) for printed, label in evaluation.labels.items()},
        **more,
    }
    write_whole(path, json.dumps({"format": FORMAT, "sha256": hashed(content), **content}).encode())


def read_parts(path: Path, kind: type[_Parts], *, version: int = FORMAT) -> _Parts:
    """The entries of a file, after its checksum and their kinds were checked.

    Args:
        path: the file.
        kind: the entries that it must have.
        version: its format.

    Raises:
        FileNotFoundError: there is no file.
        DamagedError: it is damaged; `OtherFormatError` if it is another version's.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content.pop("format") != version:
            raise OtherFormatError(_reason("another format"))
        checksum = content.pop("sha256")
        text = json.dumps(content).encode()
        if checksum != hashlib.sha256(text).hexdigest():  # as `hashed` makes it
            raise DamagedError("damaged (other bytes than were written)")
        # Of text, because JSON has lists where a part is a tuple or an object.
        return kind.model_validate_json(text)
    except FileNotFoundError:
        raise
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        field_path = ".".join(map(str, first["loc"]))
        raise DamagedError(_reason(f"{field_path:.40}: {first['msg']}")) from None
    except (OSError, ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError) as error:
        raise DamagedError(_reason(f"{type(error).__name__}: {error!s:.60}")) from None


def evaluation_of(parts: EvaluationParts, *, written_here: bool = False) -> Evaluation:
    """The evaluation of the parts of a file.

    Args:
        parts: what the file holds.
        written_here: whether this program wrote it on this machine, as a cell of a table; else its figures are those of
            a stranger, because the checksum needs no key.

    Raises:
        DamagedError: a table, a picture or a figure is of another kind.
    """
    figure_of = CaptionedFigure.of_record if written_here else CaptionedFigure.of_stranger
    shares_of = table_of if written_here else profiles_of
    try:
        curves = {}
        for label, (rates, count) in parts.roc.items():
            curves[label] = np.array(rates, dtype=np.float64), count
        pictures = {}
        for label, (originals, inferred) in parts.pictures.items():
            pictures[label] = Reconstruction(_images(originals), _images(inferred))
        return Evaluation(
            scores=scores_of(parts.scores),
            lines=parts.lines,
            roc=curves,
            missing=parts.missing,
            unrelated=parts.unrelated,
            not_under_defences=parts.not_under_defences,
            pictures=pictures,
            figures=[figure_of(figure) for figure in parts.figures],
            profiles=shares_of(parts.profiles),
            details={label: table_of(columns) for label, columns in parts.details.items()},
            labels=parts.labels,
        )
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError, RuntimeError) as error:
        raise DamagedError(_reason(f"{type(error).__name__}: {error!s:.60}")) from None


def _reason(what: str) -> str:
    return f"damaged, or another version's ({what})"


def _plain_reasons(reasons: Mapping[str, Reason]) -> dict[str, Any]:
    return {name: reason_to_plain(reason) for name, reason in reasons.items()}


def _pixels(images: ArrayLike) -> dict[str, Any]:
    """Shape and values of images in [0, 1], in eight bits."""
    values = (np.asarray(images).clip(0, 1) * 255).round().astype(np.uint8)
    return {"shape": list(values.shape), "base64": base64.b64encode(values.tobytes()).decode()}


def _images(pixels: Pixels) -> NDArray[np.float32]:
    values = np.frombuffer(base64.b64decode(pixels.base64), dtype=np.uint8)
    return values.reshape(pixels.shape).astype(np.float32) / np.float32(255)


def _columns(table: pd.DataFrame) -> dict[str, Any]:
    """Types and values by column; JSON distinguishes 1, 1.0, "1" and null."""
    return {str(name): [str(column.dtype), column.tolist()] for name, column in table.items()}
