"""Kinds of what a stored evaluation holds: its checksum needs no key, so that any value may stand anywhere."""

from collections.abc import Iterable, Mapping
from typing import Any

import pandas as pd

from fedleak.core.roc_grid import POINTS
from fedleak.evaluation.labels import Label, label_of_text
from fedleak.evaluation.persons import CLIENTS, DISTANCE
from fedleak.evaluation.reasons import Reason, reason_of_plain, reason_to_plain
from fedleak.evaluation.result_names import UPDATES
from fedleak.evaluation.scores import SCHEMA, AttackInfo

_TEXTS, _WHOLE, _NUMBERS = ("object", "str", "string"), ("int64",), ("int64", "float64")
_KINDS = (*_TEXTS, *_NUMBERS, "bool")
_PROFILE = {"attack": _TEXTS, "seed": _WHOLE, "round": _WHOLE, "class": _WHOLE, "true": _NUMBERS, "inferred": _NUMBERS}
_OF_CLIENTS = {"victim": _WHOLE, "low": (*_NUMBERS, "object"), "high": (*_NUMBERS, "object")}
_OVER_CLIENTS = {CLIENTS: _WHOLE, DISTANCE: _NUMBERS}
_SCORES = {name: {"object": _TEXTS, "float64": _NUMBERS}.get(kind, (kind,)) for name, kind in SCHEMA.items()}
_LARGEST_PICTURES = 2**26
"""Numbers of the pictures of one attack."""


def scores_of(columns: Mapping[str, Any]) -> pd.DataFrame:
    """Table of scores.

    Raises:
        ValueError: a column is missing or of another kind.
    """
    return _checked(table_of(columns), _SCORES)


def profiles_of(columns: Mapping[str, Any]) -> pd.DataFrame:
    """Table of class shares, of single clients or over them; empty without columns.

    Raises:
        ValueError: a column is missing or of another kind.
    """
    if not columns:
        return pd.DataFrame()
    return _checked(table_of(columns), _PROFILE | (_OF_CLIENTS if "victim" in columns else _OVER_CLIENTS))


def table_of(columns: Mapping[str, Any]) -> pd.DataFrame:
    """Table of plain values.

    Raises:
        ValueError: a column has an unknown type, another length, or a value that is no text, number or truth value.
    """
    found = {}
    for name, (kind, values) in columns.items():
        if kind not in _KINDS or not isinstance(values, list):
            raise ValueError(f"a column of the kind {str(kind)[:20]!r}")
        if not all(value is None or isinstance(value, str | int | float | bool) for value in values):
            raise ValueError(f"a value of another kind in {name[:40]!r}")
        found[name] = pd.Series(values, dtype=kind)
    if len({len(values) for values in found.values()}) > 1:
        raise ValueError("columns of several lengths")
    return pd.DataFrame(found)


def line_of(fields: Mapping[str, Any]) -> AttackInfo:
    """Description of the scores under a label.

    Raises:
        ValueError: a field is of another kind.
    """
    unbounded = fields.get("unbounded", [])
    if isinstance(unbounded, str):  # of an earlier version, which stored all reasons as one text
        unbounded = [unbounded] if unbounded else []
    line = AttackInfo(**{**fields, "unbounded": tuple(unbounded)})
    texts = (line.name, line.role, line.sees, line.knows, line.tells, *line.unbounded)
    may_lack = (line.variant, line.family, line.question)
    right = _are(texts, str) and _are((one for one in may_lack if one is not None), str)
    if not (right and _are((line.active, line.with_prior), bool)):
        raise ValueError("a description of an attack of another kind")
    return line


def check_curve(rates: Any, count: Any) -> None:
    """Checks the points of a sum of ROC curves and their number.

    Raises:
        ValueError: they are of another kind.
    """
    right = isinstance(rates, list) and len(rates) == POINTS and _are(rates, (int, float))
    if not right or type(count) is not int or count < 0:
        raise ValueError("a curve of another kind")


def check_shape(shape: Any) -> None:
    """Checks the shape ``(N, channels, height, width)`` of pictures.

    Raises:
        ValueError: it is another.
    """
    right = isinstance(shape, list) and len(shape) == 4 and all(type(one) is int and one > 0 for one in shape)
    if not right or shape[0] * shape[1] * shape[2] * shape[3] > _LARGEST_PICTURES:
        raise ValueError("pictures of another shape")


def texts_of(content: Mapping[str, Any]) -> dict[str, str]:
    """Texts by name.

    Raises:
        ValueError: one is no text.
    """
    if not _are(content.values(), str):
        raise ValueError("a value that is no text")
    return dict(content)


def labels_of(body: Mapping[str, Any]) -> dict[str, Label]:
    """Parts of the printed labels of a stored evaluation, also of one that an earlier version stored without them.

    Raises:
        ValueError: one is of another kind.
    """
    if "labels" not in body:
        attacks = [*body["lines"], UPDATES]
        labels = {printed: label_of_text(printed, attacks) for printed in (*body["roc"], *body["details"])}
        return {printed: label for printed, label in labels.items() if label.where}
    labels = {printed: Label(**parts) for printed, parts in body["labels"].items()}
    if not all(_are((label.attack, label.setting, label.run), str) for label in labels.values()):
        raise ValueError("a label of another kind")
    return labels


def reasons_to_plain(reasons: Mapping[str, Reason]) -> dict[str, Any]:
    """Fields of reasons by name, as JSON can hold them."""
    return {name: reason_to_plain(reason) for name, reason in reasons.items()}


def reasons_of(content: Mapping[str, Any]) -> dict[str, Reason]:
    """Reasons by name, also of the sentences that earlier versions stored.

    Raises:
        ValueError: one is neither.
    """
    return {name: reason_of_plain(fields) for name, fields in content.items()}


def _checked(table: pd.DataFrame, kinds: Mapping[str, tuple[str, ...]]) -> pd.DataFrame:
    for name, allowed in kinds.items():
        if name not in table or str(table[name].dtype) not in allowed:
            raise ValueError(f"no column {name} of the kind {allowed[0]}")
        if allowed == _TEXTS and not _are(table[name], str):
            raise ValueError(f"a value of {name} that is no text")
    return table


def _are(values: Iterable[Any], kind: type | tuple[type, ...]) -> bool:
    return all(isinstance(value, kind) for value in values)
