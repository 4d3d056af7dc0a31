"""Ours beside the paper's."""

from collections.abc import Collection, Sequence

from reports.judging import BASELINES
from reports.results import Difference, Result
from reports.settings import describe, differing, number

HEADER = ("attack", "setting", "metric", "mean", "95% interval", "n", "paper", "difference", "ms per victim")


def table_rows(results: Sequence[Result]) -> list[tuple[str, ...]]:
    """One row of text per cell, in the order of `HEADER`; of the setting, the data and what differs between cells."""
    keys = differing([result.setting for result in results]) | {"data"}
    return [_row(result, keys) for result in results]


def attacks_then_baselines(results: Sequence[Result]) -> tuple[list[Result], list[Result]]:
    """Attacks on the update, and apart from them the lines that read none."""
    attacks = [result for result in results if result.attack not in BASELINES]
    return attacks, [result for result in results if result.attack in BASELINES]


def text_table(results: Sequence[Result]) -> str:
    """The table for a terminal."""
    attacks, baselines = attacks_then_baselines(results)
    lines = aligned(HEADER, [*table_rows(attacks), *table_rows(baselines)])
    if baselines:
        lines.insert(2 + len(attacks), "without reading any update:")
    return "\n".join(lines)


def aligned(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines of text with columns under one another and a rule below the header."""
    widths = [max(len(row[column]) for row in (header, *rows)) for column in range(len(header))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in (header, *rows)
    ]
    return [lines[0], "-" * max(len(line) for line in lines), *lines[1:]]


DIFFERENCES = ("attack", "minus", "setting", "metric", "difference", "95% interval", "n")


def difference_rows(differences: Sequence[Difference]) -> list[tuple[str, ...]]:
    """One row of text per difference, in the order of `DIFFERENCES`."""
    keys = differing([one.setting for one in differences]) | {"data"}
    return [
        (
            *(one.attack, one.against, describe(one.setting, keys), one.metric, f"{one.mean:+.3f}"),
            *(f"{one.ci95[0]:+.3f} to {one.ci95[1]:+.3f}", _people(one)),
        )
        for one in differences
    ]


def _people(result: Result | Difference) -> str:
    return str(result.n) if result.seeds == 1 else f"{result.n}, {result.seeds} seeds"


def _row(result: Result, keys: Collection[str]) -> tuple[str, ...]:
    paper = result.paper
    return (
        result.attack,
        describe(result.setting, keys),
        result.metric,
        number(result.mean),
        f"{number(result.ci95[0])} to {number(result.ci95[1])}",
        _people(result),
        "" if paper is None else f"{paper.value:.3f} ({paper.source})",
        "" if paper is None else f"{result.mean - paper.value:+.3f}",
        f"{1000 * result.seconds_per_victim:.1f}",
    )
