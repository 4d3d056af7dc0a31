"""Results as `fedleak.evaluation.summary.summarise` gives them, made by hand."""

import dataclasses
import math
from typing import Any

import pandas as pd

from fedleak.evaluation.result_names import LUCK
from fedleak.evaluation.run import Run
from fedleak.evaluation.scores import SETTING, AttackInfo, from_records
from fedleak.evaluation.summary import described

LINES = {
    "codebook": AttackInfo(
        role="ours", family="ranking", question="q", sees="updates", knows="clicks", tells="what it clicked"
    ),
    "raifle": AttackInfo(role="published", family="ranking", question="q", sees="updates", knows="clicks", active=True),
    "chance": AttackInfo(role="baseline", family="interactions", question="q", sees="nothing", knows="nothing"),
    "popularity": AttackInfo(role="baseline", family="interactions", question="q", sees="nothing", knows="popularity"),
}


def cell(
    attack: str, mean: float, *, metric: str = "auc", half: float = 0.03, n: int = 20, **setting: Any
) -> dict[str, Any]:
    """A row of one cell; the interval is the mean and ``half``."""
    numbers = {"mean": mean, "std": 0.1, "low": mean - half, "high": mean + half, "n": n, "seeds": 1}
    keys = {SETTING + key: value for key, value in {"data": "d", **setting}.items()}
    return {
        "attack": attack,
        "metric": metric,
        **numbers,
        "seconds_per_victim": 0.1,
        **keys,
        "paper": None,
        "source": None,
    }


def table(*rows: dict[str, Any], lines: dict[str, AttackInfo] | None = None) -> pd.DataFrame:
    """The rows with what is known of their lines."""
    unknown = [{LUCK: math.nan, **row} for row in rows]
    made = described(from_records(unknown), LINES if lines is None else lines)
    return made.assign(paper=made["paper"].astype(float))


RUN_LINES = {
    "direction": AttackInfo(
        name="direction",
        role="ours",
        family="recommendation",
        question="q",
        sees="the update",
        knows="nothing",
        tells="x",
    ),
    "chance": AttackInfo(role="baseline", family="interactions"),
}


def run(**changed: Any) -> Run:
    """A run with two results and a difference."""
    first = {
        **cell("direction", 0.7, epsilon=1.5, queries=4),
        "high": math.nan,
        "seeds": 2,
        "paper": 0.9,
        "source": "T",
    }
    results = table(first, {**cell("chance", math.nan), "std": 0.0, "n": 0}, lines=RUN_LINES)
    difference = {"attack": "direction", "against": "chance", "metric": "auc", "mean": 0.2, "low": 0.1, "high": 0.3}
    difference |= {"ratio": 1.4, "ratio_low": 1.2, "ratio_high": 1.6}
    made = Run(
        *("e", "c", 0, None, {"torch": "2"}, {"name": "d", "sha256": "0"}, "h", 1.0, results),
        differences=pd.DataFrame([{**difference, "n": 10, "seeds": 2, "setting.data": "d"}]),
        gate=[{"metric": "auc", "limit": 0.6, "verdict": "failed", "message": "GATE FAILED"}],
        read_back=["k"],
        details={"direction": [{"check": "scale", "measured": 0.5, "n": 3, "tied": True, "note": None}]},
    )
    return dataclasses.replace(made, **changed)
