"""What a what-if says next to trainings is counted for attacks alone, by the direction in which it errs."""

import pandas as pd
import pytest

from bench.what_if import LESS, MORE, WITHIN, compared_rows, said
from tests.frames import cell, results


def rows(**means: float) -> pd.DataFrame:
    """Results of class shares, where a smaller distance is more leak, and of records, where a larger AUC is."""
    return results(
        cell("output-counts", "l1", means["l1"]),
        cell("candidate-fit", "auc", means["auc"]),
        cell("equal-counts", "l1", 0.9),
    )


@pytest.mark.parametrize(
    ("l1", "auc", "directions"),
    [
        (0.32, 0.82, [WITHIN, WITHIN]),
        (0.40, 0.70, [LESS, LESS]),
        (0.20, 0.90, [MORE, MORE]),
    ],
)
def test_a_miss_has_the_direction_of_the_leak_and_baselines_are_not_counted(
    l1: float, auc: float, directions: list[str]
) -> None:
    compared = compared_rows(rows(l1=0.30, auc=0.80), rows(l1=l1, auc=auc), ["setting.data"])
    assert list(compared["attack"]) == ["output-counts", "candidate-fit"]
    assert list(compared["says"]) == directions
    line = said(compared)
    count = directions.count(WITHIN)
    assert line.startswith(f"{count} of 2 rows within ({count / 2:.0%})")
    if count == 0:
        assert line.endswith(f"; 2 say {directions[0]}, by 0.100 in the mean and 0.100 at most")
