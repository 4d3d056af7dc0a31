"""Evaluation of attacks on a recording, with its output files."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from attacks.base import Attack
from evaluation.auditing import audit
from evaluation.diagnosis import explainer
from evaluation.evaluate import evaluate_recording, metrics_of
from evaluation.gate import Gate
from evaluation.learner_match import with_learner_check
from evaluation.persons import without_persons
from evaluation.runner import Evaluation
from protocol.errors import require
from protocol.seeding import secret_key
from recordings.recorded_learner import recorded_learner
from recordings.recording import Recording
from reports.files import Format
from reports.run import Run
from reports.wandb_log import shows_in_wandb
from reports.write_run import write_run

_SEEDS = 2**63


def attack_recording(
    attacks: Sequence[Attack],
    recording: Recording,
    directory: Path,
    seed: int,
    gate: Gate | None = None,
    wandb: str | None = None,
    formats: Sequence[Format] = (),
    describe: bool = False,
    persons: bool = False,
    **options: Any,
) -> tuple[Evaluation, Run | None]:
    """Scores of attacks as written, and the results; None if no attack could be scored and nothing is described.

    Args:
        attacks: attacks to run.
        recording: recording of a training.
        directory: folder of the results.
        seed: seed of the attacks' draws.
        gate: limits on the scores, see `evaluation.gate`.
        wandb: Weights & Biases project to log to.
        formats: formats of further files, see `reports.files`.
        describe: whether to describe the updates, also if no attack could be scored.
        persons: whether the results hold pseudonyms and client numbers, see `evaluation.persons`.
        options: further arguments of `evaluate_recording`, or of `audit` if the updates are described.
    """
    start, key = time.perf_counter(), secret_key()
    check_numbers(seed=seed, victims=options.get("victims"))
    if describe:
        evaluation = audit(recording, attacks, seed=seed, **options).evaluation
    else:
        evaluation = evaluate_recording(recording, attacks, seed=seed, separate=True, **options)
        if evaluation.scores.empty:
            return evaluation, None
        evaluation = with_learner_check(evaluation, recording, attacks, seed=seed)
    run = write_run(
        evaluation,
        directory=directory,
        experiment=directory.resolve().name,
        data=recording.manifest.data,
        seed=seed,
        seconds=time.perf_counter() - start,
        metrics=metrics_of(attacks),
        explain=explainer(recording, recorded_learner(recording), seed=seed),
        gate=gate,
        shows=shows_in_wandb(wandb, directory),
        formats=formats,
        persons=persons,
        key=key,
    )
    return evaluation if persons else without_persons(evaluation, key), run


def folder_above(deltas: str) -> Path:
    """Parent folder of a recording."""
    return Path(deltas).resolve().parent


def check_numbers(*, seed: int = 0, victims: int | None = None, seeds: int = 1) -> None:
    """Checks the ranges of options that several commands have.

    Raises:
        InputError: an option is out of its range.
    """
    require(0 <= seed < _SEEDS, "--seed from 0 to 2**63 - 1", seed, "Set a seed in this range.")
    for name, number in (("--victims", victims), ("--seeds", seeds)):
        require(number is None or number >= 1, f"{name} of at least 1", number, "Set at least 1, or omit it.")
