from bench.authors.contest import Comparison
from bench.authors.contests.ilrg import LabelRestoration
from bench.authors.race import Result, Side


def test_row_has_medians_per_victim_and_names_what_differs() -> None:
    comparisons = [Comparison("AUC", 0.9, 0.9, 0.01), Comparison("F1", 0.5, 0.7, 0.01)]
    result = Result(LabelRestoration(), 4, comparisons, Side([4.0, 8.0, 40.0], 1, 2), Side([80.0, 8.0, 120.0], 1, 3))
    row = result.row()
    assert (row["ours_s"], row["theirs_s"], row["ratio"]) == (2.0, 20.0, 10.0)
    assert (row["least_ratio"], row["most_ratio"]) == (0.2, 30.0)
    assert row["results"] == "different"
    assert "apart" in str(row["compared"])
