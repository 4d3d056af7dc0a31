"""From a dump of plain arrays to a recording."""

from pathlib import Path

from tqdm import tqdm

from datamodules.recordings.array_dump import Dump
from datamodules.recordings.writer import RecordingWriter
from modules.learners.recorded_learner import check_learner


def convert_dump(manifest: Path, out: Path, *, progress: bool = True) -> int:
    """Converts a dump, one round in memory at a time; the folder becomes a recording with the last round.

    Args:
        manifest: what the dump holds, see `datamodules.recordings.dump_manifest`.
        out: folder of the recording.
        progress: show a bar with the time left.

    Returns:
        Number of rounds.

    Raises:
        InputError: a file is missing, or holds something else than the manifest says.
    """
    dump = Dump(manifest)
    system = dump.system
    check_learner(system.learner, system.parameters, where=f"the manifest {manifest}")
    rounds = sorted(dump.manifest.rounds, key=lambda one: one.round)
    with RecordingWriter(out, system) as writer:
        for one in tqdm(rounds, desc="convert", unit="round", disable=not progress):
            writer.write(one.round, dump.model(one), dump.sent(one), len(one.clients))
        writer.close()
        writer.declare()
    return len(rounds)
