"""Figure with its caption, as the files that were rendered of it; `fedleak.reports.figures` draws figures."""

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from fedleak.evaluation.safe_svg import safe_svg

Kind = Literal["svg", "pdf"]
KINDS: tuple[Kind, ...] = ("svg", "pdf")


@dataclass
class CaptionedFigure:
    """Figure with its caption.

    Attributes:
        caption: sentence below the figure.
        name: start of the names of its files.
        files: content of its files by kind.
        question: name of the question in the results that it is about; None for a figure of a step.
    """

    caption: str
    name: str = "figure"
    files: dict[Kind, bytes] = field(default_factory=dict, repr=False)
    question: str | None = field(default=None, compare=False)

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """Kinds of its files."""
        return tuple(kind for kind in KINDS if kind in self.files)

    @property
    def drawn_here(self) -> bool:
        """Whether this process drew it, so that its SVG may stand in a page; else it is shown as an image."""
        return False

    def file(self, kind: Kind) -> bytes:
        """Content of a file of the figure."""
        return self.files[kind]

    @property
    def svg(self) -> str:
        """SVG element, without the declarations of a file."""
        text = self.file("svg").decode()
        return text[text.index("<svg") :]

    def record(self) -> dict[str, Any]:
        """Caption, name and files as plain values for JSON."""
        files = {kind: base64.b64encode(self.file(kind)).decode() for kind in self.kinds}
        return {"caption": self.caption, "name": self.name, "files": files}

    @classmethod
    def of_record(cls, content: Mapping[str, Any]) -> "CaptionedFigure":
        """Figure that `record` describes, of a process of this program."""
        files: dict[Kind, bytes] = {}
        for kind in KINDS:
            if kind in content["files"]:
                files[kind] = base64.b64decode(content["files"][kind])
        return CaptionedFigure(content["caption"], content["name"], files)

    @classmethod
    def of_stranger(cls, content: Mapping[str, Any]) -> "CaptionedFigure":
        """Figure of a file that anybody may have written: its SVG written anew, see `safe_svg`, and no PDF.

        A viewer runs scripts of a PDF, and there is no short list of what a drawing needs.

        Raises:
            UnsafeError: its SVG does more than draw.
            ValueError: its caption or name is no text, or it has no SVG.
        """
        caption, name = content["caption"], content["name"]
        if not isinstance(caption, str) or not isinstance(name, str):
            raise ValueError("a figure's caption and name that are no texts")
        return CaptionedFigure(caption, name, {"svg": safe_svg(base64.b64decode(content["files"]["svg"]))})
