"""``fedleak lint``: what in a message of a federation may be more than an update, without a model."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedleak.commands.shared.command import Command, Option, Options, flag
from fedleak.core.errors import require

if TYPE_CHECKING:
    from fedleak_recorder.lint.any_message import AnyMessage
    from fedleak_recorder.lint.finding import Finding

FINDINGS = 1
"""Exit status if something in a message may be more than an update."""
_MOST_FILES = 1000


@dataclass(frozen=True)
class LintOptions(Options):
    """Values of the options of ``fedleak lint``."""

    path: str
    examples: int | None = None
    minimum: int = 5
    json: bool = False

    def __post_init__(self) -> None:
        require(self.minimum >= 1, "--minimum: at least 1", self.minimum, "Give the smallest number of people.")
        is_count = self.examples is None or self.examples >= 1
        require(is_count, "--examples: at least 1", self.examples, "Give the number of training examples.")


def lint(options: LintOptions) -> int:
    """Prints what may be more than an update in a file, in each file of a folder, or in a recording.

    Of several messages with numbers of examples, also the parts that grow with them are printed.

    Returns:
        0 if nothing is found, 1 if something is.

    Raises:
        InputError: there is nothing to read, or a file is damaged or too large.
    """
    from fedleak_recorder.lint.growing import growing_parts
    from fedleak_recorder.lint.linting import linted
    from fedleak_recorder.lint.settings import Settings

    findings: dict[str, list[Finding]] = {}
    messages = _messages(Path(options.path), options.examples)
    for place, message in messages.items():
        findings[place] = linted(message, Settings(minimum=options.minimum))
    if len(messages) > 1:
        findings[f"all {len(messages)} messages"] = growing_parts(list(messages.values()))
    if options.json:
        print(json.dumps(_as_json(findings, len(messages)), indent=1))
    else:
        _print_findings(findings, len(messages))
    return FINDINGS if any(findings.values()) else 0


def _messages(path: Path, examples: int | None) -> dict[str, "AnyMessage"]:
    """Messages by place: of a file, of the files of a folder, or of the clients of a recording."""
    from fedleak_recorder.lint.reading import is_recording, read_message, recorded_messages

    if not path.is_dir():
        return {path.name: read_message(path, examples=examples)}
    if is_recording(path):
        messages = dict(recorded_messages(path))
    else:
        files = sorted(file for file in path.rglob("*") if file.is_file() and not file.is_symlink())
        way_out = "Give a file, or a folder with fewer."
        require(len(files) <= _MOST_FILES, f"at most {_MOST_FILES} files in {path}", len(files), way_out)
        messages = {str(file.relative_to(path)): read_message(file, examples=examples) for file in files}
    require(messages, f"a message in {path}", "none", "Give a file, or a folder of files or of a recording.")
    return messages


def _print_findings(findings: Mapping[str, Sequence["Finding"]], messages: int) -> None:
    """Prints a paragraph for each kind of finding, and at the end how many there are."""
    by_kind: dict[str, list[tuple[str, Finding]]] = {}
    for place, of_place in findings.items():
        for finding in of_place:
            by_kind.setdefault(finding.kind, []).append((place, finding))
    for kind, of_kind in by_kind.items():
        print(f"{kind}:")
        for place, finding in of_kind:
            # Names and texts are those of a stranger's file, so that escapes stand for what a terminal would obey.
            print(f"  {_shown(place)}: {_shown(finding.sentence)}")
        print(f"  way out: {of_kind[0][1].way_out}\n")
    total = sum(map(len, findings.values()))
    count = f"{messages} messages" if messages != 1 else "1 message"
    if total:
        findings_in_words = f"{total} findings" if total != 1 else "1 finding"
        print(f"{findings_in_words} in {count}.")
    else:
        print(f"no finding in {count}. An update of a network leaks too: fedleak audit measures how much.")


def _shown(text: str) -> str:
    """A text with escapes for what cannot be printed."""
    return "".join(character if character.isprintable() else ascii(character)[1:-1] for character in text[:500])


def _as_json(findings: Mapping[str, Sequence["Finding"]], messages: int) -> dict[str, Any]:
    """All findings as plain values."""
    rows = []
    for place, of_place in findings.items():
        for finding in of_place:
            row = {"message": place, "kind": finding.kind, "what": finding.what, "where": finding.where}
            rows.append({**row, "how_sure": finding.how_sure, "way_out": finding.way_out})
    return {"messages": messages, "findings": rows}


COMMAND = Command(
    heading="start here",
    place=14,
    summary="names what in a message is more than an update: rows, texts, counts, trees, keys",
    groups={
        "what to look at": [
            Option(
                "path",
                "a message: .npz, .npy, .safetensors, .json, .csv, text; a folder of them, or of a recording",
                required=True,
                parsing={"metavar": "PATH"},
            ),
            Option(
                "--examples",
                "number of training examples of the client",
                "what the message says of it",
                parsing={"metavar": "N", "type": int},
            ),
            Option(
                "--minimum",
                "smallest number of people that a count or a statistic may be of",
                "5",
                parsing={"metavar": "N", "type": int, "default": 5},
            ),
        ],
        "how to print it": [flag("--json", "JSON in the place of text")],
    },
    options=LintOptions,
    run=lint,
    description="It needs no model and opens no pickle. The exit status is 0, or 1 if there are findings.",
    loads="",
)
