"""Reasons have fields, their sentences are made at the end, and no code reads one of them or a label back."""

from typing import get_args

import pytest

from fedleak.evaluation.reasons import (
    Kind,
    Reason,
    lacks,
    nearest_reason,
    reason_of_plain,
    reason_of_sentence,
    reason_to_plain,
    reasons,
)
from tests.places import ROOT, package_sources
from tests.read_back import read_back, read_back_in

READS = {
    "fedleak/evaluation/reasons.py": "the kind that pages of earlier versions need, of a sentence that they stored",
    "fedleak/evaluation/labels.py": "labels that earlier versions stored without their parts",
}
"""Files that may read such a text, with what they read."""

SENTENCES = {
    "the recording lacks x, y; add them": Reason("lacking", ("x", "y"), "add them"),
    "the recording lacks x": Reason("lacking", ("x",)),
    "without labels, users in truth/ of the recording it cannot be scored; add both": Reason(
        "unscored", ("labels", "users"), "add both"
    ),
    "it needs clients that rank; the clients' algorithm is A, no B": Reason(
        "other-clients", ("clients that rank",), says="the clients' algorithm is A, no B"
    ),
    "the question does not apply: there are no items": Reason("inapplicable", says="there are no items"),
    "it is slow (minutes per victim); add --slow": Reason(
        "slow", way_out="add --slow", says="it is slow (minutes per victim)"
    ),
    "expected layer fc2.weight, got none": Reason("misfit", says="expected layer fc2.weight, got none"),
}


@pytest.mark.integration
@pytest.mark.inventory
def test_no_reason_and_no_label_is_read_back() -> None:
    reading = {path.relative_to(ROOT).as_posix(): lines for path in package_sources() if (lines := read_back_in(path))}
    assert {path: lines for path, lines in reading.items() if path not in READS} == {}


@pytest.mark.parametrize(
    "line",
    [
        'reason.startswith("it is slow")',
        'evaluation.missing[name].partition(";")[0]',
        '"--slow" in reason',
        "learner not in str(reason)",
        'str(verdict.get("attack") or "").partition(" (")',
        'row["label"].removesuffix(")")',
        'table["label"].str.contains("prior")',
        'curve_label.rpartition("/")[2]',
        're.match("it is slow", reason)',
        '[name for name in run.not_run if name.endswith(" under defences")]',
        '{label: text.count(",") for label, text in evaluation.unrelated.items()}',
        '[curve for name, curve in evaluation.roc.items() if "+prior" in name]',
    ],
)
def test_code_that_reads_one_back_is_found(line: str) -> None:
    assert read_back(f"x = 1\ny = {line}\n") == [2]


@pytest.mark.parametrize(
    "line",
    [
        'reason.kind == "slow"',
        '"the items" in reason.lacks',
        "label in labels",
        "label in by_label",
        'path.name.startswith("rounds/")',
        '[table for table in evaluation.details.values() if "client" in table]',
        '", ".join(evaluation.missing)',
    ],
)
def test_code_that_asks_fields_is_not_found(line: str) -> None:
    assert read_back(f"x = {line}\n") == []


@pytest.mark.parametrize(("sentence", "reason"), SENTENCES.items(), ids=SENTENCES)
def test_a_sentence_is_made_of_the_fields(sentence: str, reason: Reason) -> None:
    assert str(reason) == reason.sentence == sentence
    assert reason_of_plain(reason_to_plain(reason)) == reason


@pytest.mark.parametrize("sentence", SENTENCES)
def test_a_sentence_that_was_stored_alone_stays_the_same(sentence: str) -> None:
    assert str(reason_of_plain(sentence)) == sentence


def test_of_a_sentence_nothing_is_told_but_that_a_question_does_not_apply() -> None:
    kinds = {reason_of_sentence(sentence).kind for sentence in SENTENCES}
    assert kinds == {"inapplicable", "unknown"}


@pytest.mark.parametrize(
    "content",
    [
        3,
        None,
        {},
        {"kind": "slow"},
        {**reason_to_plain(Reason("slow")), "kind": "x"},
        {**reason_to_plain(Reason("slow")), "lacks": [1]},
    ],
)
def test_what_is_no_reason_is_an_error(content: object) -> None:
    with pytest.raises(ValueError, match="a reason"):
        reason_of_plain(content)


def test_the_nearest_lacks_least() -> None:
    """In this order; among equals, it is the reason of most attacks."""
    ordered = [
        Reason("unscored", ("labels",)),
        Reason("slow", says="it is slow"),
        Reason("lacking", ("the clients' training algorithm", "x", "y")),
        Reason("lacking", ("devices of the server's own, whose users it knows",)),
        Reason("lacking", ("x", "y")),
        Reason("misfit", says="one, two"),
        Reason("inapplicable", says="no items"),
    ]
    for place, nearest in enumerate(ordered):
        assert nearest_reason({str(reason): reason for reason in reversed(ordered[place:])}) == nearest
    few, many = Reason("misfit", says="few"), Reason("defect", says="many")
    assert nearest_reason({"a": few, "b": many, "c": many}) == many


def test_every_kind_is_farther_than_the_truth_and_nearer_than_what_does_not_apply() -> None:
    distances = {kind: Reason(kind).distance[0] for kind in get_args(Kind)}
    assert min(distances, key=distances.__getitem__) == "unscored"
    assert max(distances, key=distances.__getitem__) == "inapplicable"
    assert list(distances.values()).count(distances["inapplicable"]) == 1


def test_needs_are_said_in_plain_words_once() -> None:
    reason = lacks(["served", "auxiliary:images", "auxiliary:labels", "x"])
    assert reason.lacks == ("the items that the server showed", "labelled examples of the server's own", "x")
    assert reason.way_out == (
        "give an array `served` with the items shown to each client; add images, labels to the server's data"
        " (`auxiliary:`)"
    )


def test_attacks_with_the_same_sentence_share_a_line() -> None:
    late = Reason("late", way_out="add minutes", says="it is late")
    assert reasons({"a": late, "b": Reason("defect", says="x"), "c": late}) == [
        "a, c could not run: it is late; add minutes.",
        "b could not run: x.",
    ]
