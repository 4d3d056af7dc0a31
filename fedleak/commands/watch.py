"""``fedleak watch``: audit of a recording while the training that writes it runs."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedleak.commands.shared import shared_options, value_types
from fedleak.commands.shared.command import Command, Option, Options

if TYPE_CHECKING:
    from fedleak.core.attack import Attack
    from fedleak.evaluation.limits import Limit
    from fedleak.evaluation.reasons import Reason
    from fedleak.evaluation.watching import Look, Watch
    from fedleak.recordings.recording import Recording
    from fedleak.reports.watch_view import LoggerName

_PRIORITY = 5
"""Of the process: the training goes first."""
_STAYS = "the scores of the audited rounds are kept, and the same command goes on from them"


@dataclass(frozen=True)
class WatchOptions(Options):
    """Values of the options of ``fedleak watch``."""

    recording: str
    only: Sequence[str] | None = None
    also: Sequence[str] = ()
    slow: bool = False
    victims: int | None = None
    learner: str | None = None
    learner_arguments: Mapping[str, Any] = field(default_factory=dict)
    out: str | None = None
    logger: Sequence["LoggerName"] = ()
    gate: Sequence[str] = ()
    gate_by_name: Mapping[str, Any] = field(default_factory=dict)
    every: int = 1
    until: int | None = None
    seed: int = 0
    expected_rounds: int | None = None


def watch(options: WatchOptions) -> int:
    """Audits new rounds of a recording as they are written, and writes a verdict that servers read."""
    import torch

    from fedleak.commands.shared.results_place import check_results_place
    from fedleak.core.signals import Stopped
    from fedleak.evaluation.fitting import misfits
    from fedleak.evaluation.limits import read_gate
    from fedleak.evaluation.registry import chosen_attacks
    from fedleak.reports.results_folder import folder_above, results_folder
    from fedleak.reports.watch_view import WatchView, log_look, make_loggers
    from fedleak_recorder.verdict import VERDICT

    limits = read_gate(shared_options.limits_of(options.gate, options.gate_by_name))
    attacks = chosen_attacks(options.only, options.also)
    folder = folder_above(options.recording) / "watch"
    if options.out is not None:
        folder = Path(options.out)
    watch_of_rounds = _watch(options, folder, limits, attacks)
    check_results_place(folder, recordings=[options.recording], holds_files=options.out is not None)
    # Beside the training on the same machine: one thread, and a priority that is raised to 5, never lowered.
    torch.set_num_threads(1)
    os.nice(max(_PRIORITY - os.nice(0), 0))
    last: Look | None = None
    with (
        results_folder(folder, readable=VERDICT),
        WatchView(len(limits), options.expected_rounds or options.until) as view,
    ):
        loggers = make_loggers(list(options.logger), str(folder))
        try:
            for last in watch_of_rounds.looks():
                view.show(last)
                log_look(loggers, last)
        except Stopped as stopped:
            stopped.kept = _STAYS
            raise
        finally:
            for logger in loggers:
                logger.finalize("success")
    if last is None:
        print(f"no round to audit\nno verdict in {folder}: no round was audited")
        return _status(last)
    print("\n".join(f"round {last.round}: {state.sentence}" for state in last.states))
    unmeasured = [limit for limit, state in zip(limits, last.states, strict=True) if state.attack is None]
    if unmeasured:
        did_not_run = misfits(_opened(options), attacks)
        print("\n".join(_why_unmeasured(limit, attacks, did_not_run) for limit in unmeasured))
    print(f"verdict: {folder / VERDICT}")
    return _status(last)


def _watch(options: WatchOptions, folder: Path, limits: Sequence["Limit"], attacks: Sequence["Attack"]) -> "Watch":
    """The watch of a recording that need not exist yet."""
    from fedleak.evaluation.confidence_sequence import EXPECTED_ROUNDS
    from fedleak.evaluation.sequential_gate import measuring
    from fedleak.evaluation.watching import Watch

    return Watch(
        Path(options.recording),
        folder,
        limits,
        measuring(limits, attacks),
        open_recording=lambda: _opened(options),
        every=options.every,
        until=options.until,
        expected=options.expected_rounds or EXPECTED_ROUNDS,
        seed=options.seed,
        victims=options.victims,
        slow=options.slow,
    )


def _opened(options: WatchOptions) -> "Recording":
    """The recording, which its training may still write."""
    from fedleak.commands.shared.open_recording import open_recording

    return open_recording(options.recording, options.learner, options.learner_arguments, running=True)


def _why_unmeasured(limit: "Limit", attacks: Sequence["Attack"], did_not_run: Mapping[str, "Reason"]) -> str:
    """Why no attack has measured a limit, and which metric its question has for the recorded network."""
    from fedleak.evaluation.unmeasured_limits import fitting_metric, why_unmeasured

    limited_attacks = [attack for attack in attacks if limit.applies_to(attack)]
    metric_here = fitting_metric(limit, attacks, did_not_run)
    return f"{limit.name}: {metric_here}{why_unmeasured(limit, limited_attacks, did_not_run)}"


def _status(last: "Look | None") -> int:
    """Exit status as of ``audit --gate``."""
    from fedleak.evaluation.gate import FAILED, UNCHECKED, UNDECIDED

    if last is None or last.overall == "unknown":
        return UNCHECKED
    verdicts = {state.verdict for state in last.states}
    if "exceeded" in verdicts:
        return FAILED
    if "open" in verdicts:
        return UNDECIDED
    return 0


COMMAND = Command(
    heading="audits",
    place=31,
    summary="audits the rounds of a recording while they are written, and writes a verdict that the server reads",
    groups={
        shared_options.AUDITED: [
            shared_options.recording_folder("folder of the recording, which need not exist yet"),
            shared_options.ONLY,
            shared_options.ALSO,
            shared_options.SLOW,
            shared_options.victims("clients of each round to attack, drawn at random", "all"),
            shared_options.LEARNER,
        ],
        shared_options.WRITTEN: [
            shared_options.out("folder of the verdict and of the scores", "watch next to the recording"),
            Option(
                "--logger",
                "loggers of Lightning for the numbers of each round: csv, tensorboard, wandb or mlflow",
                "none",
                parsing={"action": "extend", "type": value_types.loggers, "metavar": "NAMES"},
            ),
        ],
        shared_options.LIMITS: [
            shared_options.gate(
                "limit on what an attack infers, METRIC=LIMIT or QUESTION/METRIC=LIMIT, as for `fedleak audit`, with"
                " intervals that hold over all looks together. Repeatable"
            ),
            Option(
                "--every",
                "number of new rounds after which they are audited",
                "1",
                parsing={"type": value_types.at_least_one("--every"), "metavar": "N"},
            ),
            Option(
                "--until",
                "number of the last round to wait for",
                "the watch ends when the recording is closed",
                parsing={"type": value_types.from_zero, "metavar": "ROUND"},
            ),
        ],
        shared_options.ADVANCED: [
            shared_options.SEED,
            Option(
                "--expected-rounds",
                "rounds of the training, for the time left and for narrow intervals; another number is no error",
                "100",
                parsing={"type": value_types.at_least_one("--expected-rounds"), "metavar": "N"},
            ),
        ],
    },
    options=WatchOptions,
    run=watch,
)
