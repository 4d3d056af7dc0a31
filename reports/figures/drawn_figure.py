"""Figure of matplotlib with its caption, rendered as SVG or PDF when a file is needed."""

import io
from dataclasses import dataclass, field
from typing import Any

from matplotlib import rc_context
from matplotlib.figure import Figure

from evaluation.captioned_figure import CaptionedFigure, Kind

_FIXED = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}
"""Metadata without which the same figure gives the same bytes."""


@dataclass(kw_only=True)
class DrawnFigure(CaptionedFigure):
    """Captioned figure of matplotlib; its pickle holds the files, which other processes could not draw alike.

    Attributes:
        figure: the figure.
    """

    figure: Figure = field(compare=False, repr=False)

    def file(self, kind: Kind) -> bytes:
        """Content of a file of the figure, deterministic, with text that can be searched."""
        if kind not in self.files:
            buffer = io.BytesIO()
            with rc_context({"svg.hashsalt": "fedleak", "svg.fonttype": "none", "pdf.fonttype": 42}):
                self.figure.savefig(buffer, format=kind, metadata=_FIXED[kind], bbox_inches="tight")
            self.files[kind] = buffer.getvalue()
        return self.files[kind]

    def __reduce__(self) -> tuple[Any, ...]:
        return CaptionedFigure.of_record, (self.record(),)
