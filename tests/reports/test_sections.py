"""A section has its main metric first, attacks above baselines, and says what its metrics mean."""

import math

import pandas as pd

from fedleak.evaluation.scores import AttackInfo
from fedleak.reports.sections import by_question, detail_sections, difference_tables, metrics_of, sections, text_tables
from tests.reports.toys import LINES, cell, table
from tests.wording import lacking

SCORED = [
    cell(name, mean, metric=metric)
    for name, mean in (("chance", 0.5), ("raifle", 0.7), ("codebook", 0.9))
    for metric in ("f1", "auc")
]


def test_the_main_table_has_the_best_attack_first_and_says_what_it_shows() -> None:
    (section,) = sections(table(*SCORED))
    main, further = section.tables
    assert not lacking(section.title, "infer", "what it clicked")
    assert (main.name, main.attacks) == ("auc", 2)
    assert main.rows["attack"].tolist() == ["codebook", "raifle", "chance"]
    assert not lacking(main.caption, "d:", "mean auc over clients", "n is", "AUC is 0.5 for guessing")
    assert list(further.rows) == ["attack", "f1", "n"]
    assert further.rows["attack"].tolist() == main.rows["attack"].tolist()
    assert further.caption.startswith("Further metric, f1: mean and, in brackets, its 95% interval. F1 is")


def test_many_cells_are_a_wide_table_with_all_cells_on_demand() -> None:
    rows = [cell(name, 0.7, epsilon=e, queries=q) for name in ("chance", "raifle") for e in range(4) for q in range(3)]
    ((wide, whole),) = [one.tables for one in sections(table(*rows))]
    assert "epsilon 3" in list(wide.rows)
    assert wide.rows["attack"].tolist() == ["raifle"] * 3 + ["chance"] * 3
    assert (wide.attacks, whole.attacks, len(whole.rows), whole.folded) == (3, 12, 24, True)


def test_a_value_of_the_papers_attack_is_not_taken_for_ours() -> None:
    rows = [{**cell("codebook", 0.9), "paper": 0.8, "source": "t"}]
    assert "that of the paper's attack" in sections(table(*rows))[0].tables[0].caption
    assert "that of the paper's attack" not in sections(table(cell("codebook", 0.9)))[0].tables[0].caption


def test_baselines_stand_below_the_attacks_on_the_screen() -> None:
    lines = text_tables(sections(table(cell("chance", 0.5), cell("raifle", 0.9), cell("bound", 0.95)))).splitlines()
    assert [line.split()[0] for line in lines[4:]] == ["raifle", "baselines,", "bound", "chance"]
    assert len({line.index(" to ") for line in lines if " to " in line}) == 1


def test_without_a_score_there_is_no_section() -> None:
    assert sections(table(cell("codebook", math.nan))) == []
    assert text_tables([]) == ""
    assert difference_tables(pd.DataFrame()) == []


def test_an_attacks_own_table_has_no_empty_columns() -> None:
    ((section,),) = [detail_sections({"release-check": [{"a": 1, "b": None, "c": "x"}, {"a": 2, "b": None}]})]
    (shown,) = section.tables
    assert shown.texts.to_numpy().tolist() == [["1", "x"], ["2", ""]]
    assert (section.title, shown.folded) == ("Details of release-check", False)


def test_bounds_stand_with_the_questions_whose_metrics_they_have() -> None:
    lines = {**LINES, "link": AttackInfo(role="ours", question="other", tells="who sent it")}
    rows = [cell("codebook", 0.9), cell("bound", 0.95), cell("link", 0.8, metric="ap"), cell("chance", 0.5)]
    found = by_question(table(*rows, cell("none", 0.3, metric="hr@10"), lines=lines))
    assert [(title, own["attack"].tolist()) for title, own in found] == [
        ("Can the server infer what it clicked?", ["codebook", "bound", "chance"]),
        ("Can the server infer who sent it?", ["link"]),
        ("Bounds and models", ["none"]),
    ]


def test_results_without_questions_are_one_section() -> None:
    ((title, rows),) = by_question(table(cell("x", 0.9), cell("y", 0.8), lines={"x": AttackInfo(role="ours")}))
    assert (title, len(rows)) == ("Results", 2)


def test_the_metric_that_judges_comes_first() -> None:
    rows = [cell("codebook", 0.9, metric=name) for name in ("own", "null_false_positive", "l2", "l1", "f1")]
    assert metrics_of(table(*rows)) == ["l1", "f1", "l2", "null_false_positive", "own"]
