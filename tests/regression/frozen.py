"""Frozen values: one file of lines for each table, and what differs from it."""

import math
from pathlib import Path

from tests.regression.cases import Row, Values, reductions

FOLDER = Path(__file__).with_name("frozen")
TOLERANCE = 1e-4
_HEADER = "attack\tmetric\tmean\tn\tsetting"


def path_of(name: str) -> Path:
    return FOLDER / f"{name}.tsv"


def write_frozen(name: str, values: Values) -> None:
    """A line of six digits for each value, sorted by setting, attack and metric; ``-`` for what is not compared."""
    lines = [
        f"{attack}\t{metric}\t{'-' if metric in _not_compared(name) else format(mean, '.6g')}\t{n}\t{setting}"
        for (setting, attack, metric), (mean, n) in sorted(values.items())
    ]
    FOLDER.mkdir(exist_ok=True)
    path_of(name).write_text("\n".join([_HEADER, *lines]) + "\n", encoding="utf-8")


def read_frozen(name: str) -> Values:
    lines = path_of(name).read_text(encoding="utf-8").splitlines()[1:]
    values: Values = {}
    for line in lines:
        attack, metric, mean, n, setting = line.split("\t")
        values[setting, attack, metric] = float("nan" if mean == "-" else mean), int(n)
    return values


def differences(name: str, now: Values) -> list[str]:
    """Lines of a table: what is frozen, and what it is now; of missing and new rows too."""
    frozen, compared = read_frozen(name), reductions()[name].get("tolerance", TOLERANCE)
    found = [
        (row, frozen.get(row), now.get(row))
        for row in sorted({*frozen, *now})
        if not _same(frozen.get(row), now.get(row), compared, compare_mean=row[2] not in _not_compared(name))
    ]
    return [_line(row, old, new) for row, old, new in found]


def _not_compared(name: str) -> list[str]:
    metrics: list[str] = reductions()[name].get("not_compared", [])
    return metrics


def _same(
    old: tuple[float, int] | None, new: tuple[float, int] | None, tolerance: float, *, compare_mean: bool
) -> bool:
    if old is None or new is None or old[1] != new[1]:
        return False
    both_nan = math.isnan(old[0]) and math.isnan(new[0])
    return not compare_mean or both_nan or math.isclose(old[0], new[0], rel_tol=tolerance, abs_tol=tolerance / 100)


def _line(row: Row, old: tuple[float, int] | None, new: tuple[float, int] | None) -> str:
    setting, attack, metric = row
    before, after = ("no row" if value is None else f"{value[0]:.6g} (n={value[1]})" for value in (old, new))
    return f"{attack:28} {metric:24} frozen {before:24} now {after:24} {setting}"
