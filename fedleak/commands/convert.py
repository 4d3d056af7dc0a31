"""``fedleak convert``: recordings from the files of another system."""

from pathlib import Path

from tqdm import tqdm

from fedleak.commands.publish import print_published, publish_copy
from fedleak.commands.results_place import check_new_recording
from fedleak.recordings.array_dump import Dump
from fedleak.recordings.recorded_learner import check_learner
from fedleak.reports.results_folder import print_outputs, shell_command
from fedleak_recorder.pseudonyms import secret_key
from fedleak_recorder.writer import RecordingWriter


def convert(source: str, out: str) -> int:
    """Converts .npz or .safetensors files of another system to a recording, see docs/reference/recording-format.md.

    Args:
        source: the file that describes the files; of the folder of a recording, the copy to pass on is made.
        out: folder of the recording.
    """
    if Path(source).is_dir():
        check_new_recording(out, source)
        print_published(publish_copy(Path(source), Path(out)), Path(out))
        return 0
    check_new_recording(out)
    rounds = convert_dump(Path(source), Path(out))
    print(f"{rounds} rounds converted")
    print_outputs({"recording": [Path(out)]}, then=shell_command("audit", out))
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
