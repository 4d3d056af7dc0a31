"""Frozen values: one file of lines for each table, and what differs from it."""

import math
from pathlib import Path

from tests.regression.cases import Row, Values, reductions

FOLDER = Path(__file__).with_name("frozen")
TOLERANCE = 1e-4
"""Relative difference that a mean may have.

On one machine all means are the same to six digits, with one thread and with two, all tables in one process or each in
its own; on others too, as far as ``tests/__init__.py`` can choose the same kernels. The tolerance is for sums in
another order. Under the kernels of AVX-512 or of SSE, 45 attacks of the tables move further, half of them by more than
.01: an optimizer that ends elsewhere, a tie that falls to the other side.
"""
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
    """Lines of a table: what is frozen, and what it is now; of missing rows too."""
    found = [(row, old, now.get(row)) for row, old in sorted(read_frozen(name).items())]
    return [_line(row, old, new) for row, old, new in found if not _same(old, new, _tolerance(name, row))]


def new_rows(name: str, now: Values) -> list[str]:
    """Lines of rows that are not frozen, as those of a new attack are: they are reported, and no number has moved."""
    frozen = read_frozen(name)
    return [_line(row, None, now[row]) for row in sorted(now.keys() - frozen.keys())]


def _tolerance(name: str, row: Row) -> float:
    own: dict[str, float] = reductions()[name].get("tolerance", {})
    return math.inf if row[2] in _not_compared(name) else own.get(row[1], TOLERANCE)


def _not_compared(name: str) -> list[str]:
    metrics: list[str] = reductions()[name].get("not_compared", [])
    return metrics


def _same(old: tuple[float, int] | None, new: tuple[float, int] | None, tolerance: float) -> bool:
    if old is None or new is None or old[1] != new[1]:
        return False
    both_nan = math.isnan(old[0]) and math.isnan(new[0])
    return both_nan or tolerance == math.inf or math.isclose(old[0], new[0], rel_tol=tolerance, abs_tol=1e-6)


def _line(row: Row, old: tuple[float, int] | None, new: tuple[float, int] | None) -> str:
    setting, attack, metric = row
    before, after = ("no row" if value is None else f"{value[0]:.6g} (n={value[1]})" for value in (old, new))
    return f"{attack:28} {metric:24} frozen {before:24} now {after:24} {setting}"
