"""Tables of results, as `fedleak.evaluation.summary.summarise` makes them."""

import functools
from typing import Any

import pandas as pd

from fedleak.evaluation.registry import KNOWN
from fedleak.evaluation.scores import SETTING, AttackInfo, Role

KINDS = {name: kind for kind in KNOWN for name in kind.names()}


def line_of(name: str) -> AttackInfo:
    """What the attack of a name says of itself; a reference where there is none."""
    kind = KINDS.get(name)
    if kind is None:
        return AttackInfo()
    published: Role = "published" if kind.references else "ours"
    role: Role = "baseline" if kind.baseline else published
    return AttackInfo(
        name=kind.name,
        variant=kind.variant_key,
        role=role,
        family=kind.family,
        question=kind.estimates.question(),
        tells=kind.estimates.inferred,
    )


def cell(
    name: str, metric: str, mean: float, low: float | None = None, high: float | None = None, **more: Any
) -> dict[str, Any]:
    """A row of results."""
    setting = {SETTING + key: value for key, value in more.pop("setting", {"data": "d"}).items()}
    width = more.pop("width", 0.01)
    numbers = {"low": mean - width if low is None else low, "high": mean + width if high is None else high}
    fixed = {"attack": name, "metric": metric, "mean": mean, "std": 0.1, "n": 20, "seeds": 1, "seconds_per_victim": 0.1}
    return {**fixed, **numbers, **setting, **_columns(name), **more}


@functools.cache
def _columns(name: str) -> dict[str, Any]:
    return line_of(name).columns()


def results(*rows: dict[str, Any]) -> pd.DataFrame:
    return pd.DataFrame(list(rows))
