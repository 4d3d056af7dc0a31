"""A published table gives one number for a cell, and grids of them with intervals and n."""

from typing import Any

import pytest

from docs.tools.published_table import PublishedTable
from fedleak.core.errors import InputError
from tests.reports.toys import cell, run, table


@pytest.fixture
def published() -> PublishedTable:
    rows = [
        cell("codebook", 0.1 * q + (0.5 if e == "inf" else 0), queries=q, epsilon=e) for q in (1, 2) for e in ("inf", 1)
    ]
    with_paper = [{**row, "paper": 0.25} for row in rows[:1]] + [{**row, "paper": float("nan")} for row in rows[1:]]
    return PublishedTable("toy", run(results=table(*with_paper)))


def test_a_grid_shows_every_cell_with_its_interval_and_n(published: PublishedTable) -> None:
    lines: dict[str, Any] = {"the paper": {"attack": "codebook", "paper": True}, "ours": "codebook"}
    assert published.grid("auc", lines, ("epsilon", ["inf", 1]), ("queries", [1, 2])).splitlines() == [
        "| | inf | 1 | interval within | n |",
        "| --- | --- | --- | --- | --- |",
        "| the paper | 0.25 / - | | | |",
        "| ours | 0.60 / 0.70 | 0.10 / 0.20 | 0.03 | 20 |",
    ]


def test_a_single_value_has_no_interval() -> None:
    published = PublishedTable(
        "toy", run(results=table(cell("bound", 0.2, n=1, half=0), cell("codebook", 0.2, half=0.1)))
    )
    assert published.full("bound", "auc") == "0.200 (n = 1)"
    assert published.grid("auc", {"b": "bound"}, {"": {}}).splitlines()[-1] == "| b | 0.20 | | 1 |"


def test_a_value_names_one_cell(published: PublishedTable) -> None:
    assert published.value("codebook", "auc", 2, queries=2, epsilon=1) == "0.20"
    assert published.full("codebook", "auc", 2, queries=2, epsilon=1) == "0.20 (0.17 to 0.23, n = 20)"
    for setting in ({"queries": 2}, {"queries": 3, "epsilon": 1}, {"other": 1}):
        with pytest.raises(InputError, match="codebook"):
            published.value("codebook", "auc", **setting)


def test_a_ratio_is_that_of_the_paired_differences() -> None:
    toy = PublishedTable("toy", run())
    text = toy.grid("auc", {"ours": {"attack": "direction", "against": "chance"}}, {"d": {"data": "d"}}, digits=1)
    assert text.splitlines()[-1] == "| ours | 1.4 (1.2 to 1.6) | | 10, 2 seeds |"
