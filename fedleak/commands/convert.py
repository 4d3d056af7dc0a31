"""``fedleak convert``: recordings from the files of another system."""

from dataclasses import dataclass
from pathlib import Path

from fedleak.commands.publish import print_published
from fedleak.commands.shared import shared_options
from fedleak.commands.shared.command import Command, Option, Options


@dataclass(frozen=True)
class ConvertOptions(Options):
    """Values of the options of ``fedleak convert``."""

    source: str
    out: str


def convert(options: ConvertOptions) -> int:
    """Converts .npz or .safetensors files of another system to a recording, see docs/reference/recording-format.md.

    Of the folder of a recording, the copy to pass on is made.
    """
    from fedleak.commands.shared.results_place import check_new_recording
    from fedleak.recordings.published_copy import publish_copy
    from fedleak.reports.results_folder import print_outputs, shell_command

    source = Path(options.source)
    out = Path(options.out)
    if source.is_dir():
        check_new_recording(options.out, options.source)
        print_published(publish_copy(source, out), out)
        return 0
    check_new_recording(options.out)
    rounds = convert_dump(source, out)
    print(f"{rounds} rounds converted")
    print_outputs({"recording": [out]}, then=shell_command("audit", options.out))
    return 0


def convert_dump(manifest: Path, out: Path, *, progress: bool = True) -> int:
    """Converts a dump with one round in memory at a time; returns the number of rounds.

    Clients get pseudonyms from a secret key, which is drawn anew or read from the environment variable ``FEDLEAK_KEY``,
    and their messages are ordered by pseudonym.

    Raises:
        InputError: a file is missing, or does not match the manifest.
    """
    from tqdm import tqdm

    from fedleak.recordings.array_dump import Dump
    from fedleak.recordings.recorded_learner import check_learner
    from fedleak_recorder.pseudonyms import secret_key
    from fedleak_recorder.writer import RecordingWriter

    dump = Dump(manifest)
    system = dump.system
    check_learner(system.learner, system.parameters, where=f"the manifest {manifest}")
    rounds = sorted(dump.manifest.rounds, key=lambda dumped_round: dumped_round.round)
    key = secret_key()
    with RecordingWriter(out, system, key=key) as writer:
        for dumped_round in tqdm(rounds, desc="convert", unit="round", disable=not progress):
            writer.write(
                dumped_round.round,
                dump.model(dumped_round),
                dump.sent(dumped_round, key),
                len(dumped_round.clients),
            )
        # All rounds of a dump are there, so the recording is closed and declared complete.
        writer.close()
        writer.declare()
    return len(rounds)


COMMAND = Command(
    heading="recordings",
    place=21,
    summary="converts .npz or .safetensors files of another system to a recording",
    groups={
        "what to convert": [
            Option(
                "source",
                "YAML or JSON file that describes the files, see docs/reference/recording-format.md; of the folder of a"
                " recording it makes the copy that `fedleak publish` makes",
                required=True,
                parsing={"metavar": "MANIFEST"},
            ),
            shared_options.out("folder of the recording, new or empty"),
        ]
    },
    options=ConvertOptions,
    run=convert,
)
