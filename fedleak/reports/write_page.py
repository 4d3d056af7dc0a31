"""Page of a run with its figures and further files, and its table on the screen."""

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from fedleak.core.io.files import write_whole
from fedleak.core.progress import say_what_starts
from fedleak.evaluation.captioned_figure import CaptionedFigure
from fedleak.evaluation.evaluation import Evaluation
from fedleak.evaluation.run import Run
from fedleak.reports.change_tables import change_rows, change_sentences, change_tables, text_of_changes
from fedleak.reports.defence_table import defence_table
from fedleak.reports.figures.first_pictures import first_pictures
from fedleak.reports.figures.report_figures import profiles_of, report_figures
from fedleak.reports.files import Format, write_files
from fedleak.reports.html import write_report
from fedleak.reports.questions import first_words, questions
from fedleak.reports.sections import aligned, detail_sections, difference_tables, sections, text_tables

CHANGES = "changes.csv"


def write_page(
    directory: Path,
    run: Run,
    evaluation: Evaluation,
    everything: pd.DataFrame,
    metrics: Sequence[str],
    *,
    parts: Sequence[Run] = (),
    causes: Sequence[str] = (),
    formats: Sequence[Format] = (),
    persons: bool = False,
) -> list[CaptionedFigure]:
    """Writes the page of a run and the further files, prints its tables, and returns its figures.

    `everything` are the results with derived ones, `metrics` those that the run reports; see `write_report`. Only with
    `persons` is anything about a single client shown.
    """
    say_what_starts("drawing the figures and writing the page")
    figures = report_figures(evaluation, everything, metrics, persons=persons)
    details = detail_sections(run.details, profiles_of(evaluation)[1], evaluation.labels)
    answered = sections(run.results)
    differences = difference_tables(run.differences)
    measured_questions = questions(run.results, evaluation.scores, run.gate)
    pictures = first_pictures(evaluation, run.results, measured_questions, persons=persons)
    changed = [
        (change_sentences(compared), compared["notes"], change_tables(compared, position))
        for position, compared in enumerate(run.changes)
    ]
    write_report(
        directory,
        run,
        questions=measured_questions,
        sections=[*answered, *details],
        differences=differences,
        parts=parts,
        pictures=pictures,
        figures=figures,
        causes=causes,
        changes=changed,
    )
    # Further files have each table of the page as it is shown, and the numbers behind them in full.
    tables = [table for section in [*answered, *details] for table in section.tables]
    tables += differences
    for _, _, tables_of_changes in changed:
        tables += tables_of_changes
    numbers = {"results": run.results, "differences": run.differences}
    for section in details:
        numbers |= {table.name: table.rows for table in section.tables}
    written = write_files(directory, formats, figures=figures, tables=tables, numbers=numbers)
    # The screen, most urgent first: what changed, false declarations, defences, then the answers.
    (directory / CHANGES).unlink(missing_ok=True)
    if run.changes:
        write_whole(directory / CHANGES, change_rows(run.changes).to_csv(index=False).encode())
        texts = [text_of_changes(*comparison) for comparison in changed]
        print("\n\n".join(["what changed:", *texts]), end="\n\n")
    for sentence in run.false_declarations:
        print(f"{sentence}.")
    defences = defence_table(run.results, run.defences)
    if defences is not None:
        print("\n".join([*aligned(defences), "", defences.caption]), end="\n\n")
    print(f"{first_words(measured_questions, run.results)}\n\n{text_tables(answered)}\n")
    if written:
        folders = sorted({str(path.parent) for path in written})
        print(f"{', '.join(formats)}: {' and '.join(folders)}")
    return figures
