"""Tables of what changed: the best attack of each question first, with the verdict, and every number in the file."""

import json

import numpy as np
import pytest

from fedleak.evaluation.changes import changes
from fedleak.evaluation.runner import Evaluation
from fedleak.evaluation.scores import AttackInfo, concat, score_table
from fedleak.evaluation.stored_run import StoredRun
from fedleak.reports.change_tables import change_rows, change_sentences, change_tables, stored_changes, text_of_changes
from tests.wording import lacking

LINES = {f"attack-{n}": AttackInfo(role="ours", family="ranking", question="q", tells="clicks") for n in range(14)}


def run(name: str, shift: float, *, attacks: int = 2, people: int = 8, first: int = 0) -> StoredRun:
    values = np.linspace(0.5, 0.6, people) + shift
    numbers = range(first, first + people)
    tables = [
        score_table(f"attack-{n}", {"auc": values + 0.01 * n}, setting={"data": "d"}, seed=0, victims=numbers)
        for n in range(attacks)
    ]
    return StoredRun(name, Evaluation(scores=concat(tables), lines=LINES), {"name": "d", "sha256": "0"})


def test_best_attacks_stand_first_and_the_rest_below() -> None:
    best, every = change_tables(stored_changes(changes(run("a", 0.0, people=80), run("b", 0.1, people=80))))
    (row,) = best.rows.to_dict("records")
    assert (row["leaks"], row["question"], row["attack"], row["a"], row["b"]) == (
        *("more", "ranking", "attack-1", "0.560", "0.660"),
    )
    assert (row["difference"], row["n"], "paired" in row) == ("+0.100", "80", False)
    assert (every.rows["attack"].tolist(), every.folded) == (["attack-0", "attack-1"], False)


def test_many_attacks_are_folded_and_left_out_of_a_terminal() -> None:
    found = stored_changes(changes(run("a", 0.0, attacks=14), run("b", 0.1, attacks=14)))
    tables = change_tables(found, position=1)
    assert [(table.name, table.folded) for table in tables] == [("changes-1", False), ("changes-by-attack-1", True)]
    text = text_of_changes(change_sentences(found), found["notes"], tables)
    assert "attack-13" in text
    assert "attack-3" not in text


def test_a_sentence_says_what_changed_in_the_unit_of_the_metric() -> None:
    (sentence,) = change_sentences(stored_changes(changes(run("a", 0.0, people=80), run("b", 0.1, people=80))))
    rates = ("66 of 100 cases in b", "in a: 56", "+10", "+5.0 to +14", "paired on 80 clients")
    assert not lacking(sentence, "Clicks", "more is inferred in b than in a", *rates)
    (loose,) = change_sentences(stored_changes(changes(run("a", 0.0), run("b", 0.1, first=50))))
    assert "not paired, 8 clients or more in each" in loose


def test_rows_that_are_not_paired_say_so() -> None:
    best, _ = change_tables(stored_changes(changes(run("a", 0.0), run("b", 0.1, first=50))))
    assert best.rows["paired"].tolist() == ["no"]


def test_one_client_has_no_interval_in_json_and_an_infinite_one_in_tables() -> None:
    found = stored_changes(changes(run("a", 0.0, people=1), run("b", 0.1, people=1, first=50)))
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    (row, *_) = found["rows"]
    assert (row["verdict"], row["paired"]) == ("undecided", False)
    assert change_tables(found)[0].rows["95% interval"].tolist() == ["-0.663 to +0.726"]  # of one client a side


def test_file_has_every_row_with_the_names_of_the_runs() -> None:
    compared = [stored_changes(changes(run("a", 0.0), run(name, 0.1))) for name in ("b", "c")]
    rows = change_rows(compared)
    assert rows["of_run"].tolist() == ["b"] * 3 + ["c"] * 3
    assert set(rows["of_reference"]) == {"a"}
    assert rows["change"].tolist() == pytest.approx([0.1] * 6)
