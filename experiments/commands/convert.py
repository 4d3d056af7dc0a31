"""``attack.py convert``: recordings from the files of another system, or without ground truth."""

from pathlib import Path

from tqdm import tqdm

from datamodules.io.files import inside, regular_file
from experiments.commands.results import print_outputs, shell_command
from experiments.commands.results_place import check_new_recording
from fedleak_recorder.folder import RecordingFolder
from fedleak_recorder.format import AUXILIARY, append_journal, close_journal, journals_in, read_journal, write_shard
from fedleak_recorder.pseudonyms import secret_key
from fedleak_recorder.writer import RecordingWriter
from protocol.errors import require
from recordings.array_dump import Dump
from recordings.recorded_learner import check_learner
from recordings.recording import Recording


def convert(out: str, manifest: str | None = None, deltas: str | None = None) -> int:
    """Converts .npz or .safetensors files of another system to a recording, see docs/recording-format.md."""
    found = "both" if manifest and deltas else "neither"
    require((manifest is None) != (deltas is None), "--manifest or --deltas", found, "Give one of them.")
    check_new_recording(out, deltas)
    if deltas is not None:
        rounds = copy_without_truth(Path(deltas), Path(out))
        print(f"{rounds} rounds copied without ground truth")
        why = "describes the updates; without ground truth it scores nothing"
        print_outputs({"recording": [Path(out)]}, then=shell_command("audit", "--deltas", out, why=why))
        return 0
    rounds = convert_dump(Path(str(manifest)), Path(out))
    print(f"{rounds} rounds converted")
    print_outputs({"recording": [Path(out)]}, then=shell_command("audit", "--deltas", out))
    return 0


def convert_dump(manifest: Path, out: Path, *, progress: bool = True) -> int:
    """Converts a dump with one round in memory at a time; returns the number of rounds.

    Clients get pseudonyms from a secret key, which is drawn anew or read from the environment variable ``FEDLEAK_KEY``,
    and their messages are ordered by pseudonym.

    Raises:
        InputError: a file is missing, or does not match the manifest.
    """
    dump = Dump(manifest)
    system = dump.system
    check_learner(system.learner, system.parameters, where=f"the manifest {manifest}")
    rounds = sorted(dump.manifest.rounds, key=lambda one: one.round)
    key = secret_key()
    with RecordingWriter(out, system, key=key) as writer:
        for one in tqdm(rounds, desc="convert", unit="round", disable=not progress):
            writer.write(one.round, dump.model(one), dump.sent(one, key), len(one.clients))
        writer.close()
        writer.declare()
    return len(rounds)


def copy_without_truth(deltas: Path, out: Path) -> int:
    """Copies what the server saw, to pass it on without ground truth; returns the number of rounds.

    Raises:
        InputError: there is no recording, a file differs from its journal, or `out` holds a recording.
    """
    recording, folder = Recording(deltas), RecordingFolder(out)
    folder.check_free()
    folder.lock()
    try:
        folder.start()
        for path in journals_in(deltas):
            journal, rank = read_journal(path), int(path.stem.partition("-")[2] or 0)
            for line in journal.lines:
                if line.file.startswith("rounds/"):
                    source = inside(deltas, line.file, what="a shard")
                    regular_file(source)
                    copied = write_shard(out, line.file, source.read_bytes())
                    require(copied == line, f"{line.file} as journalled", "another content", "Copy it again, whole.")
                    append_journal(out, rank, [copied])
            if journal.closed:
                close_journal(out, rank, len({line.file for line in journal.lines if line.file.startswith("rounds/")}))
        given = recording.manifest.auxiliary is not None
        folder.declare(recording.manifest, (deltas / AUXILIARY).read_bytes() if given else None)
    finally:
        folder.release()
    return len(recording.rounds)
