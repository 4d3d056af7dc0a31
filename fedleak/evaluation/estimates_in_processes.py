"""Estimates of an audit's attacks, computed in several processes before their scores are computed in one."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from tqdm import tqdm

import fedleak.evaluation.registry  # noqa: F401 - makes the variants of attacks, which a process reads back
from fedleak.core.attack import Attack
from fedleak.core.view import RoundView
from fedleak.evaluation.evaluate import Share, evaluate_recording
from fedleak.evaluation.kept_estimates import KeptEstimates
from fedleak.evaluation.processes import in_processes
from fedleak.recordings.recording import Recording

_PARTS = 8
"""Parts of the work for each process, so that none waits long for the last one."""
_VICTIMS = 64
"""Victims of a view at most, for all learners but recommenders, whose views have more."""


def estimate_in_processes(
    recording: Recording,
    attacks: Sequence[Attack],
    estimates_on_disk: KeptEstimates,
    *,
    jobs: int,
    machine: tuple[int, int] = (0, 1),
    progress: bool = True,
    **options: Any,
) -> None:
    """Writes the estimates of an audit, which then reads them back and scores them: bit for bit those of one process.

    A part is a number of views, of all rounds and groups of clients; with few views, a number of pairs of a view and an
    attack. An estimate that cannot be kept (see `KeptEstimates`) is computed again by the audit.

    Args:
        recording: what is attacked.
        attacks: attacks of the audit.
        estimates_on_disk: where estimates are kept.
        jobs: number of processes, with one thread each.
        machine: ``(i, n)`` for every n-th part from the i-th on, where n machines share the folder of the estimates.
        progress: whether to show a progress bar over the parts.
        options: further arguments of `fedleak.evaluation.evaluate.evaluate_recording`.
    """
    views = sum(math.ceil(len(recording.pseudonyms(number)) / _VICTIMS) for number in recording.rounds)
    single = sum(attack.view is RoundView for attack in attacks)
    first, machines = machine
    of_pairs = views < _PARTS * jobs * machines
    parts = min(_PARTS * jobs * machines, max(views * single, len(attacks)) if of_pairs else views)
    shares = [Share(index, parts, of_pairs) for index in range(first, parts, machines)]
    work = [(recording, attacks, estimates_on_disk, options | {"share": share}) for share in shares]
    before = len(estimates_on_disk)
    for _ in tqdm(in_processes(_estimate, work, jobs=jobs), total=len(work), desc="estimates", disable=not progress):
        pass  # a part has written its estimates, and returns nothing
    estimates_on_disk.made += len(estimates_on_disk) - before


def _estimate(work: tuple[Recording, Sequence[Attack], KeptEstimates, Mapping[str, Any]]) -> None:
    recording, attacks, estimates_on_disk, options = work
    evaluate_recording(
        recording, attacks, estimates_on_disk=estimates_on_disk, separate=True, progress=False, **options
    )
