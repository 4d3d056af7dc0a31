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
    lines = questions(run.results, evaluation.scores, run.gate)
    pictures = first_pictures(evaluation, run.results, lines, persons=persons)
    changed = [
        (change_sentences(compared), compared["notes"], change_tables(compared, place))
        for place, compared in enumerate(run.changes)
    ]
    write_report(
        directory,
        run,
        questions=lines,
        sections=[*answered, *details],
        differences=differences,
        parts=parts,
        pictures=pictures,
        figures=figures,
        causes=causes,
        changes=changed,
    )
    tables = [table for section in [*answered, *details] for table in section.tables] + differences
    tables += [table for *_, change_tables_of_run in changed for table in change_tables_of_run]
    numbers = {"results": run.results, "differences": run.differences}
    numbers |= {table.name: table.rows for section in details for table in section.tables}
    written = write_files(directory, formats, figures=figures, tables=tables, numbers=numbers)
    (directory / CHANGES).unlink(missing_ok=True)
    if run.changes:
        write_whole(directory / CHANGES, change_rows(run.changes).to_csv(index=False).encode())
        print("\n\n".join(["what changed:", *(text_of_changes(*one) for one in changed)]), end="\n\n")
    for sentence in run.false_declarations:
        print(f"{sentence}.")
    defences = defence_table(run.results, run.defences)
    if defences is not None:
        print("\n".join([*aligned(defences), "", defences.caption]), end="\n\n")
    print(f"{first_words(lines, run.results)}\n\n{text_tables(answered)}\n")
    if written:
        print(f"{', '.join(formats)}: {' and '.join(sorted({str(path.parent) for path in written}))}")
    return figures
