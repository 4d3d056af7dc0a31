"""The page explains what it shows, and what strangers wrote is text there."""

import html
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from fedleak.evaluation.captioned_figure import CaptionedFigure
from fedleak.evaluation.labels import Label
from fedleak.evaluation.reasons import Reason
from fedleak.evaluation.run import Run
from fedleak.evaluation.scores import AttackInfo
from fedleak.reports.html import FEW, GENERATED, write_report
from fedleak.reports.questions import questions
from fedleak.reports.sections import detail_sections, sections
from tests.reports.toys import LINES, cell, table
from tests.reports.toys import run as toy_run

DATA = {"name": "digits", "sha256": ""}


def page(folder: Path, results: pd.DataFrame, missing: dict[str, Reason] | None = None, **arguments: object) -> str:
    run = Run("test", "", 0, None, {}, DATA, "", 1.0, results, missing or {})
    options = {"questions": questions(results), "sections": sections(results), **arguments}
    return write_report(folder, run, **options).read_text(encoding="utf-8")  # type: ignore[arg-type]


@pytest.mark.parametrize(("metric", "said", "unsaid"), [("auc", "AUC is", "L1 is"), ("l1", "L1 is", "AUC is")])
def test_only_the_metrics_that_are_shown_are_explained(tmp_path: Path, metric: str, said: str, unsaid: str) -> None:
    text = page(tmp_path, table(cell("codebook", 0.7, metric=metric)))
    assert said in text
    assert unsaid not in text


def test_the_page_says_which_intervals_it_has(tmp_path: Path) -> None:
    text = page(tmp_path, table(cell("codebook", 0.7, metric="exact")))
    assert "Gaffke's interval for a metric with a least and a largest value" in text
    assert "2,000 resamples" not in text


def test_names_and_settings_of_strangers_are_text(tmp_path: Path) -> None:
    script = "<script>alert(1)</script>"
    line = AttackInfo(role="ours", sees=script, knows="k", tells=script)
    rows = [cell(script, 0.7 + number / 100, data=script, epsilon=number) for number in range(30)]
    for kept in (rows[:2], rows):  # long, and wide
        figure = CaptionedFigure(script, files={"svg": b"<svg></svg>"})
        results = table(*kept, lines={script: line})
        text = page(
            tmp_path, results, missing={script: Reason("misfit", says=script)}, causes=[script], figures=[figure]
        )
        assert script not in text
        assert "&lt;script&gt;" in text


def test_who_the_attacker_is_stands_once_for_each_attack(tmp_path: Path) -> None:
    text = page(tmp_path, table(cell("codebook", 0.9), cell("codebook", 0.8, epsilon=1), cell("bound", 1.0)))
    rows = text.partition('id="threats"')[2].partition("</table>")[0]
    assert rows.count("<td>codebook</td><td>passive</td><td>updates</td><td>clicks</td>") == 1
    assert "bound" not in rows


@pytest.mark.parametrize(
    "changed",
    [
        {"results": table(cell("codebook", 0.7, n=4), lines=LINES)},
        {"gate": [{"metric": "auc", "limit": 0.6, "verdict": "failed", "message": "in round 3", "n": 1}]},
        {"changes": [{"reference": "a", "run": "b", "notes": [], "rows": [{"n": 3}]}]},
    ],
    ids=["result", "gate", "changes"],
)
def test_a_number_over_fewer_than_five_clients_is_said_wherever_it_stands(
    tmp_path: Path, changed: dict[str, Any]
) -> None:
    assert FEW not in write_report(tmp_path, toy_run()).read_text(encoding="utf-8")
    assert FEW in write_report(tmp_path, toy_run(**changed)).read_text(encoding="utf-8")


def test_generated_data_are_said_to_be_so(tmp_path: Path) -> None:
    assert GENERATED.split("'")[0] in page(tmp_path, table(cell("codebook", 0.9, data="synthetic-letor")))
    assert "generated" not in page(tmp_path, table(cell("codebook", 0.9, data="ml-100k")))
    both = page(tmp_path, table(cell("codebook", 0.9, data="synthetic"), cell("codebook", 0.9, data="ml-100k")))
    assert "Generated data (synthetic): their numbers" in both


def test_a_further_question_has_an_answer_of_its_own(tmp_path: Path) -> None:
    asked = AttackInfo(role="ours", question="another", tells="what it reads")
    lines = {**LINES, "words": asked, "guess": AttackInfo(role="baseline", question="another")}
    rows = [cell(name, mean) for name, mean in (("codebook", 0.95), ("chance", 0.5), ("words", 0.8), ("guess", 0.5))]
    text = html.unescape(page(tmp_path, table(*rows, lines=lines)))
    assert text.count("On d, the server can infer from a client's update what it clicked.") == 2  # page and section
    answer = text.index("On d, the server can infer from a client's update what it reads.")
    assert answer > text.index("Can the server infer what it reads?")


def test_a_long_text_in_a_table_is_broken_into_lines(tmp_path: Path) -> None:
    rows = [{"tensor": "w", "remark": "a remark that is longer than any name of a tensor"}]
    label = Label("updates", run="digits")
    sections_of_details = detail_sections({str(label): rows}, labels={str(label): label})
    run = Run("test", "", 0, None, {}, DATA, "", 1.0, table(cell("codebook", 0.9)))
    text = write_report(tmp_path, run, sections=sections_of_details).read_text(encoding="utf-8")
    assert '<td class="long">a remark' in text
    assert "What the updates in digits look like" in text


def test_questions_and_a_picture_stand_above_the_sections_with_their_figures(tmp_path: Path) -> None:
    names = ("picture", "first caption", "second caption", "of a step")
    picture, *figures = [CaptionedFigure(name, files={"svg": b"<svg></svg>"}) for name in names]
    lines = {**LINES, "words": AttackInfo(role="ours", family="words", question="another", tells="what it reads")}
    for figure, question in zip(figures, ("another", "q"), strict=False):
        figure.question = question
    results = table(cell("codebook", 0.9), cell("chance", 0.5), cell("words", 0.4), lines=lines)
    text = page(tmp_path, results, pictures=[picture], figures=figures)
    parts = [
        "the server can infer",
        "best attack</dt>",
        "compared with</dt>",
        "measured on</dt>",
        "<b>Figure 1.</b> picture",
        '<li class="leak">',
        '<li class="near">',
        "Can the server infer what it clicked?</h2>",
        "The best attack, codebook",
        "<b>Figure 2.</b> second caption",
        "<table",
        "Can the server infer what it reads?</h2>",
        "<b>Figure 3.</b> first caption",
        '<h2 id="figures">',
        "<b>Figure 4.</b> of a step",
    ]
    text = text.partition("<main")[2]
    assert [text.index(part) for part in parts] == sorted(text.index(part) for part in parts)


def test_an_audit_without_scores_has_no_empty_table(tmp_path: Path) -> None:
    text = page(tmp_path, table(cell("codebook", 0.9)).head(0), missing={"decaf": Reason("misfit", says="why")})
    assert "No attack could be scored" in text
    assert "decaf could not run: why." in text
    assert "<table" not in text
    assert "Intervals are" not in text


def test_numbers_are_aligned_to_the_right(tmp_path: Path) -> None:
    text = page(tmp_path, table(cell("codebook", 0.9)))
    assert '<td class="number">0.900</td>' in text
    assert "<td>codebook</td>" in text


def test_what_was_recorded_and_what_to_do_stand_on_the_first_screen(tmp_path: Path) -> None:
    results = table(cell("codebook", 0.9), cell("chance", 0.5))
    given: dict[str, Any] = {
        "system": {"data": "d", "learner": "mlp"},
        "unrelated": {"plain-cosine": Reason("misfit", says="one round")},
    }
    run = Run("test", "", 0, None, {}, DATA, "", 1.0, results, **given)
    text = write_report(tmp_path, run, questions=questions(results)).read_text(encoding="utf-8")
    parts = [
        "It picks the right one of a right and a wrong answer in 90 of 100 cases.",
        "Guessing, which picks the right one of a right and a wrong answer in 50 of 100 cases.",
        "20 clients; for clients like these 87 to 93 (95% interval).",
        "--what-if FILE",
        "what the questions lack",
        "<b>learner</b> mlp",
        "leaks</b>",
        "not measured</b>",
        "one round",
        "AUC is 0.5 for guessing and 1 for certainty.",
    ]
    assert [text.index(part) for part in parts] == sorted(text.index(part) for part in parts)
    joined = write_report(tmp_path, run, questions=questions(results), parts=[run, run]).read_text(encoding="utf-8")
    assert "--what-if FILE" not in joined


def test_what_changed_stands_first_where_one_data_set_is_compared(tmp_path: Path) -> None:
    results = table(cell("codebook", 0.9), cell("chance", 0.5))
    changed: Any = [(["More is inferred."], ["a note"], [])]

    def is_first(*data: str) -> bool:
        runs = [Run("test", "", 0, None, {}, {**DATA, "sha256": one}, "", 1.0, results) for one in data]
        options: dict[str, Any] = {"questions": questions(results), "changes": changed, "parts": runs}
        text = write_report(tmp_path, Run("test", "", 0, None, {}, DATA, "", 1.0, results), **options).read_text()
        return text.index("More is inferred.") < text.index("the server can infer")

    assert is_first()  # an audit with a reference
    assert is_first("a", "a")
    assert not is_first("a", "a", "b")


def test_a_wide_table_is_in_parts_with_the_attack_in_each(tmp_path: Path) -> None:
    rows = [cell("codebook", 0.9)]
    rows += [cell("codebook", 0.5, metric=f"a-metric-with-a-long-name-{number}") for number in range(9)]
    text = page(tmp_path, table(*rows))
    heads = [part.partition("</thead>")[0] for part in text.split("<thead>")[1:]]
    assert len(heads) > 2
    assert all("<th>attack</th>" in head for head in heads)
