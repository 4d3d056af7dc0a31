"""Results as `evaluation.summary.summarise` gives them, made by hand."""

from typing import Any

import pandas as pd

from evaluation.scores import SETTING, Line, from_records
from evaluation.summary import described

LINES = {
    "codebook": Line(
        role="ours", family="ranking", question="q", sees="updates", knows="clicks", tells="what it clicked"
    ),
    "raifle": Line(role="published", family="ranking", question="q", sees="updates", knows="clicks", active=True),
    "chance": Line(role="baseline", family="interactions", question="q", sees="nothing", knows="nothing"),
    "popularity": Line(role="baseline", family="interactions", question="q", sees="nothing", knows="popularity"),
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


def table(*rows: dict[str, Any], lines: dict[str, Line] | None = None) -> pd.DataFrame:
    """The rows with what is known of their lines."""
    made = described(from_records(rows), LINES if lines is None else lines)
    return made.assign(paper=made["paper"].astype(float))
