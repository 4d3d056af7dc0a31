"""Conversion of a dump of plain arrays to a recording."""

from pathlib import Path

from tqdm import tqdm

from datamodules.recordings.array_dump import Dump
from fedleak_recorder.pseudonyms import secret_key
from fedleak_recorder.writer import RecordingWriter
from modules.learners.recorded_learner import check_learner


def convert_dump(manifest: Path, out: Path, *, progress: bool = True) -> int:
    """Converts a dump with one round in memory at a time; returns the number of rounds.

    Clients get pseudonyms from a secret key, which is drawn anew or read from the environment variable ``FEDLEAK_KEY``,
    and their messages are ordered by pseudonym.

    Args:
        manifest: description of the dump, see `datamodules.recordings.dump_manifest`.
        out: folder of the recording.
        progress: whether to show a progress bar.

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
