"""Audit in a notebook: the table and the figures of its report."""

import functools
import html
from collections.abc import Sequence
from dataclasses import dataclass

from fedleak.evaluation.auditing import AuditResult
from fedleak.evaluation.captioned_figure import CaptionedFigure
from fedleak.reports.figures.report_figures import report_figures


@dataclass(frozen=True)
class NotebookPage:
    """Table and figures of an audit; a notebook displays them. Only with `persons` do they show single clients."""

    found: AuditResult
    persons: bool = False

    @functools.cached_property
    def figures(self) -> Sequence[CaptionedFigure]:
        """The figures that a report of the audit has."""
        audit = self.found
        return report_figures(audit.evaluation, audit.everything, audit.metrics, persons=self.persons)

    def _repr_html_(self) -> str:
        elements = [self.found._repr_html_()]
        for figure in self.figures:
            caption = f"<figcaption>{html.escape(figure.caption)}</figcaption>"
            elements.append(f"<figure>{figure.svg}{caption}</figure>")
        return "\n".join(elements)


def show(found: AuditResult, *, persons: bool = False) -> NotebookPage:
    """The table and the figures of an audit, as the last expression of a notebook's cell.

    Args:
        found: what was audited.
        persons: whether figures show single clients, for those who may know them.

    Example:
        >>> from tempfile import mkdtemp
        >>> from fedleak import DeltaRecorder, audit, quiet_trainer, show
        >>> from fedleak.datamodules import SyntheticRecommender
        >>> from fedleak.modules import FNCF
        >>> folder = mkdtemp()
        >>> options = {"default_root_dir": folder, "enable_progress_bar": False}
        >>> trainer = quiet_trainer(max_steps=1, callbacks=[DeltaRecorder()], **options)
        >>> trainer.fit(FNCF(), SyntheticRecommender(users=12))
        >>> page = show(audit(f"{folder}/deltas", ["direction", "popularity"], progress=False))
        >>> len(page.figures)
        4
    """
    return NotebookPage(found, persons)
