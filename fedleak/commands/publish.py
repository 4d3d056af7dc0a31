"""``fedleak publish``: a copy of a recording that can be passed on."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fedleak.commands.shared import shared_options
from fedleak.commands.shared.command import Command, Options

if TYPE_CHECKING:
    from fedleak.recordings.published_copy import Published


@dataclass(frozen=True)
class PublishOptions(Options):
    """Values of the options of ``fedleak publish``."""

    recording: str
    out: str


def publish(options: PublishOptions) -> int:
    """Copies what the server of a recording saw, without what names its clients; prints what was left out."""
    from fedleak.recordings.published_copy import publish_copy

    print_published(publish_copy(Path(options.recording), Path(options.out)), Path(options.out))
    return 0


def print_published(published: "Published", out: Path) -> None:
    """Prints what a copy holds, what was left out of it, and what it still allows."""
    from fedleak.recordings.published_copy import ALLOWS
    from fedleak.reports.results_folder import print_outputs, shell_command

    print(f"{published.rounds} rounds copied")
    print("left out:")
    for left_out in published.left_out:
        print(f"  {left_out}")
    print("the copy still allows:")
    for allowed in ALLOWS:
        print(f"  {allowed}")
    why = "describes the updates; without ground truth it scores nothing"
    print_outputs({"recording": [out]}, then=shell_command("audit", str(out), why=why))


COMMAND = Command(
    heading="recordings",
    place=22,
    summary="copies a recording to pass it on, without ground truth, records of clients and paths",
    groups={
        "what to copy": [
            shared_options.recording_folder("folder of the recording, which is not changed"),
            shared_options.out("folder of the copy, new or empty"),
        ]
    },
    options=PublishOptions,
    run=publish,
    description="It prints what was left out and what the copy still allows.",
)
