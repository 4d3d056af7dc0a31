"""Figures with captions, rendered as SVG or PDF when they are needed."""

import base64
import io
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Kind = Literal["svg", "pdf"]
KINDS: tuple[Kind, ...] = ("svg", "pdf")
_FIXED = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}
"""Metadata without which the same figure gives the same bytes."""


@dataclass
class Drawing:
    """Figure with its caption.

    Attributes:
        caption: sentence below the figure.
        figure: the figure, None if it was read from a file.
        files: content of the files that are rendered already, by kind.
        name: start of the names of its files.
    """

    caption: str
    figure: "Figure | None" = field(default=None, compare=False, repr=False)
    files: dict[Kind, bytes] = field(default_factory=dict, repr=False)
    name: str = "figure"

    def file(self, kind: Kind) -> bytes:
        """Content of a file of the figure, deterministic, with text that can be searched."""
        if kind not in self.files and self.figure is not None:
            from matplotlib import rc_context  # slow to import

            buffer = io.BytesIO()
            with rc_context({"svg.hashsalt": "fedleak", "svg.fonttype": "none", "pdf.fonttype": 42}):
                self.figure.savefig(buffer, format=kind, metadata=_FIXED[kind], bbox_inches="tight")
            self.files[kind] = buffer.getvalue()
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
    def of_record(cls, content: Mapping[str, Any]) -> "Drawing":
        """Drawing that `record` describes."""
        files: dict[Kind, bytes] = {kind: base64.b64decode(text) for kind, text in content["files"].items()}
        return cls(content["caption"], files=files, name=content["name"])

    def __getstate__(self) -> dict[str, Any]:
        """Files instead of the figure, which other processes cannot draw alike."""
        return self.record()

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        self.__dict__ = vars(self.of_record(state))
