"""Report of a run: a self-contained HTML page."""

import base64
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from fedleak.core.io.files import write_whole
from fedleak.core.metric_table import meanings
from fedleak.core.places import TEMPLATES
from fedleak.evaluation.attack_descriptions import inferred_by_family
from fedleak.evaluation.captioned_figure import CaptionedFigure
from fedleak.evaluation.limits import FEWEST
from fedleak.evaluation.reasons import reasons
from fedleak.evaluation.result_names import DATA
from fedleak.evaluation.run import Run
from fedleak.evaluation.scores import records
from fedleak.reports.content_policy import content_policy
from fedleak.reports.defence_table import defence_table
from fedleak.reports.first_screen import FirstLine, first_lines, order_of_changes, what_to_do
from fedleak.reports.gate_words import verdict_in_words
from fedleak.reports.questions import Question, first_verdict, not_measured
from fedleak.reports.sections import BASELINES, Section
from fedleak.reports.tables import ReportTable

_HALF_PAGE = 520
"""Largest width in points of a figure that fits into half of the page."""
FEW = (
    f"Some results are of fewer than {FEWEST} clients (n): such a mean is nearly their own values, so pass this page on"
    " only to those who may know them."
)
GENERATED = "The data are generated: their numbers show that the attacks run, and nothing about real people's data."


@dataclass(frozen=True)
class _QuestionPart:
    """The section of a question, with its anchor on the page and its figures: number, caption, element and class."""

    anchor: str
    section: Section
    figures: Sequence[tuple[int, str, Markup, str]]


def write_report(
    directory: Path,
    run: Run,
    *,
    questions: Sequence[Question] = (),
    sections: Sequence[Section] = (),
    differences: Sequence[ReportTable] = (),
    changes: Sequence[tuple[Sequence[str], Sequence[str], Sequence[ReportTable]]] = (),
    parts: Sequence[Run] = (),
    pictures: Sequence[CaptionedFigure] = (),
    figures: Sequence[CaptionedFigure] = (),
    causes: Sequence[str] = (),
) -> Path:
    """Writes report.html into a folder.

    `parts` are the runs that `run` joins, if any; `changes` what changed from another run: a sentence on each
    question, notes, and tables.

    The questions stand first, with the pictures; then the section of each with its figures, then the other sections.
    """
    environment = Environment(loader=FileSystemLoader(TEMPLATES), autoescape=True, undefined=StrictUndefined)
    results = run.results
    unmeasured, not_asked = not_measured(run, questions)
    defences = defence_table(results, run.defences)
    # Runs of one data set are compared, and so is an audit with its reference: what changed stands first.
    compared_data = [part.data["sha256"] or part.data["name"] for part in parts or [run]]
    # Figures have one sequence of numbers: pictures of the first screen, figures by question, then those of none.
    first_figures = _numbered(pictures, 1)
    count = len(first_figures)
    question_parts: list[_QuestionPart] = []
    for section in sections:
        if section.question is None:
            continue
        section_figures = [figure for figure in figures if figure.question == section.question]
        anchor = f"part-{len(question_parts) + 1}"
        question_parts.append(_QuestionPart(anchor, section, _numbered(section_figures, count + 1)))
        count += len(section_figures)
    anchors = {part.section.question: part.anchor for part in question_parts}
    further_figures = [figure for figure in figures if figure.question not in anchors]
    clients: set[str] = set()
    for figure in (*pictures, *figures):
        clients.update(_clients(figure))
    script = (TEMPLATES / "report.js").read_text(encoding="utf-8")
    page = environment.get_template("report.html.j2").render(
        script=script,
        policy=content_policy(script),
        run=run,
        headline=first_verdict(questions, results),
        false_declarations=run.false_declarations,
        notes=_notes(run),
        generated_too=_generated_too(results),
        questions=questions,
        unmeasured=unmeasured,
        not_asked=[inferred_by_family()[family] for family in not_asked],
        scales=meanings({question.answer.metric for question in questions}),
        lines=_first_lines(run, questions, unmeasured, is_joined=bool(parts)),
        defences=[] if defences is None else [defences],
        changes_first=bool(changes) and order_of_changes(compared_data),
        pictures=first_figures,
        parts=question_parts,
        anchors=anchors,
        details=[section for section in sections if section.question is None],
        further=_numbered(further_figures, count + 1),
        differences=differences,
        changes=changes,
        missing=reasons(run.not_run),
        causes=causes,
        baselines=BASELINES,
        threat_models=_threat_models(parts or [run]),
        clients=sorted(clients),
    )
    path = directory / "report.html"
    write_whole(path, page.encode())
    return path


def _notes(run: Run) -> list[str]:
    """Remarks at the top of a page: on the data, on few clients, on a learner that does not fit, and on each limit."""
    notes = []
    generated = _are_generated(run.results)
    if len(generated) and generated.all():
        notes.append(GENERATED)
    if _is_of_few(run):
        notes.append(FEW)
    if run.learner_wrong:
        notes.append(f"{run.learner_check[:1].upper()}{run.learner_check[1:]}.")
    for verdict in run.gate:
        notes.append(f"{verdict_in_words(verdict, run.results)} {verdict.get('message', '')}".strip())
    return notes


def _are_generated(results: pd.DataFrame) -> "pd.Series[bool]":
    """Whether each result is of generated data, whose names begin with ``synthetic``."""
    names = results.get(DATA, pd.Series("", results.index))
    return names.map(str).str.startswith("synthetic")


def _generated_too(results: pd.DataFrame) -> str:
    """The remark on generated data next to others, by their names; empty where all or none are generated."""
    generated = _are_generated(results)
    if generated.all() or not generated.any():
        return ""
    names = ", ".join(dict.fromkeys(results[DATA][generated]))
    return GENERATED.replace("The data are generated", f"Generated data ({names})")


_CLIENT = re.compile(r' data-client="([^"]*)"')


def _clients(figure: CaptionedFigure) -> list[str]:
    """Labels of the clients that a figure of the page can mark."""
    if not figure.drawn_here:
        return []
    return re.findall(_CLIENT, figure.svg)


def _numbered(figures: Iterable[CaptionedFigure], first: int) -> list[tuple[int, str, Markup, str]]:
    """Number, caption, element and class of figures."""
    numbered = []
    for number, figure in enumerate(figures, start=first):
        css_class = "wide" if _is_wide(figure.svg) else ""
        numbered.append((number, figure.caption, _element(figure), css_class))
    return numbered


def _element(figure: CaptionedFigure) -> Markup:
    """A figure in a page: the SVG element that was drawn here, or an image, in which a browser runs and loads nothing.

    Figures of a run's file and of other processes are images; their text cannot be selected.
    """
    # Only the SVG that this process drew is trusted as markup.
    if figure.drawn_here:
        return Markup(figure.svg)
    content = base64.b64encode(figure.file("svg")).decode()
    return Markup('<img alt="{}" src="data:image/svg+xml;base64,{}">').format(figure.caption, content)


def _first_lines(
    run: Run, questions: Sequence[Question], unmeasured: Sequence[Question], *, is_joined: bool
) -> list[FirstLine]:
    """The lines below the verdict; none where nothing was measured."""
    first = questions[0].answer if questions else None
    is_one_recording = not is_joined and "learner" in run.system
    todo = what_to_do(
        first,
        advice=run.advice,
        is_one_recording=is_one_recording,
        has_gate=bool(run.gate),
        lacks_data=any(question.answer.status == "unmeasured" for question in unmeasured),
    )
    if first is None:
        return [FirstLine("what to do", todo)]
    return first_lines(first, todo)


def _is_of_few(run: Run) -> bool:
    """Whether a result, a verdict of the gate (as of one round), or a difference is of fewer than `FEWEST` clients."""
    rows: list[Mapping[str, Any]] = list(run.gate)
    for compared in run.changes:
        rows += compared["rows"]
    counts = [*run.results["n"], *run.differences["n"]]
    counts += [row["n"] for row in rows if row.get("n") is not None]
    return any(1 <= count < FEWEST for count in counts)


def _is_wide(svg: str) -> bool:
    """Whether a figure needs the whole width of the page."""
    width = re.search(r'width="([\d.]+)pt"', svg)
    return width is not None and float(width[1]) > _HALF_PAGE


def _threat_models(runs: Sequence[Run]) -> ReportTable | None:
    """What the server sees and knows, and whether it is active, by attack; with the run's name where runs differ."""
    # Different threat models of each attack, by its name with that of the run where it has this one.
    by_attack: dict[str, dict[str, tuple[Any, ...]]] = defaultdict(dict)
    for run in runs:
        declared = run.results[(run.results["sees"] != "") | (run.results["knows"] != "")]
        for row in records(declared.drop_duplicates(["attack", "sees", "knows", "active"])):
            threat_model = ("active" if row["active"] else "passive", row["sees"], row["knows"])
            if threat_model not in by_attack[row["attack"]].values():
                by_attack[row["attack"]][f"{row['attack']} in {run.experiment}"] = threat_model
    # A row for each threat model, with all attacks that have it.
    attacks: dict[tuple[Any, ...], list[str]] = defaultdict(list)
    for attack, models in by_attack.items():
        for name_in_run, threat_model in models.items():
            attacks[threat_model].append(name_in_run if len(models) > 1 else attack)
    if not attacks:
        return None
    rows = [(", ".join(names), *threat_model) for threat_model, names in attacks.items()]
    table = pd.DataFrame(rows, columns=["attack", "server", "it sees", "it knows"])
    return ReportTable("threat-models", "What the server of each attack has.", table)
