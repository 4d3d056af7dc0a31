"""Figure with its caption, as the files that were rendered of it; `reports.figures` draws figures."""

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

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
        files = {kind: base64.b64encode(self.file(kind)).decode() for kind in KINDS}
        return {"caption": self.caption, "name": self.name, "files": files}

    @classmethod
    def of_record(cls, content: Mapping[str, Any]) -> "CaptionedFigure":
        """Figure that `record` describes."""
        files: dict[Kind, bytes] = {kind: base64.b64decode(text) for kind, text in content["files"].items()}
        return CaptionedFigure(content["caption"], content["name"], files)
