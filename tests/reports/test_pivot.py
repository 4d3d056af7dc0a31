"""Long tables made wide, and the figure of many panels."""

from reports.dots import beside
from reports.facets import against
from reports.pivot import across, pivot
from reports.results import Paper, Result
from reports.settings import number


def cell(epsilon: float | str, queries: int, ranker: str, attack: str = "codebook") -> Result:
    setting = {"data": "MQ2008", "ranker": ranker, "queries": queries, "epsilon": epsilon}
    mean = 0.9 if epsilon == "inf" else 0.6
    return Result(
        attack, setting, "auc", mean, 0.1, (mean - 0.02, mean + 0.04), 116, 0.1, Paper(0.77, "RAIFLE Table VII")
    )


TABLE = [
    cell(epsilon, queries, ranker)
    for ranker in ("linear", "neural-4")
    for queries in (4, 8, 16)
    for epsilon in (1, 20, 100, 500, "inf")
]


def test_a_long_table_gets_a_column_for_each_budget() -> None:
    wide = pivot(TABLE)
    assert wide is not None
    assert wide.header == (
        *("setting", "attack"), "epsilon 1", "epsilon 20", "epsilon 100", "epsilon 500", "epsilon inf", "n",
    )  # fmt: skip
    assert len(wide.rows) == 6
    assert wide.rows[1] == (
        *("linear, queries 8", "codebook"), *["0.600±0.030 (0.77)"] * 4, "0.900±0.030 (0.77)", "116",
    )  # fmt: skip


def test_a_line_that_lacks_a_cell_leaves_it_empty() -> None:
    wide = pivot([*TABLE, cell(20, 4, "linear", attack="raifle")])
    assert wide is not None
    assert wide.rows[-1][2:4] == ("", "0.600±0.030 (0.77)")


def test_a_short_table_and_one_of_a_single_setting_stay_as_they_are() -> None:
    assert pivot(TABLE[:10]) is None
    assert across([cell(20, 4, "linear")]) is None


def test_the_figure_has_a_panel_for_each_ranker_and_a_line_for_each_number_of_queries() -> None:
    drawn = against(TABLE, "epsilon", "auc")
    for text in ("linear", "neural-4", "codebook, queries 16", "inf"):
        assert f"<!-- {text} -->" in drawn


def test_what_holds_for_every_budget_has_a_column_of_its_own() -> None:
    bound = Result("bound", {"data": "MQ2008", "ranker": "linear", "queries": 4}, "auc", 0.7, 0, (0.7, 0.7), 116, 0.0)
    wide = pivot([*TABLE, bound])
    assert wide is not None
    assert wide.header[-2:] == ("any epsilon", "n")
    assert wide.rows[-1][-2:] == ("0.700±0.000", "116")


def test_words_become_columns_where_no_number_varies() -> None:
    table = [
        Result(attack, {"data": "blog", "prior": prior}, metric, 0.5, 0.1, (0.4, 0.6), 60, 0.1)
        for attack in ("reid-svm", "reid-mlp", "chance")
        for prior in ("random", "chrono")
        for metric in ("ap", "times-chance", "top1", "top5")
    ]
    wide = pivot(table)
    assert wide is not None
    assert wide.header == ("setting", "attack", "metric", "prior random", "prior chrono", "n")
    assert across(table) is None


def test_an_attack_on_several_manipulations_has_a_line_for_each() -> None:
    def made(attack: str, manipulation: str, ratio: int) -> Result:
        setting = {"data": "imagenet", "manipulation": manipulation, "ratio": ratio}
        return Result(attack, setting, "auc", 0.9, 0.1, (0.8, 0.95), 60, 0.1)

    several = [made("affine-inversion", kind, ratio) for kind in ("none", "noise") for ratio in (1, 2)]
    assert "<!-- affine-inversion, manipulation noise -->" in against(several, "ratio", "auc")
    one = [made(name, kind, ratio) for name, kind in (("raifle-none", "none"), ("raifle", "noise")) for ratio in (1, 2)]
    assert "<!-- raifle -->" in against(one, "ratio", "auc")


def test_attacks_stand_beside_one_another_with_the_papers_stars() -> None:
    drawn = beside([cell("inf", 4, "linear"), cell("inf", 4, "linear", attack="raifle")], "auc")
    for text in ("codebook", "raifle", "auc"):
        assert f"<!-- {text} -->" in drawn


def test_small_numbers_are_not_hidden() -> None:
    assert [number(value) for value in (0.0, 0.00002, 0.5, -0.12345)] == ["0.000", "2.0e-05", "0.500", "-0.123"]
