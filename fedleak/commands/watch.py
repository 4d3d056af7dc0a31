"""``fedleak watch``: audit of a recording while the training that writes it runs."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from fedleak.commands.open_recording import open_recording
from fedleak.commands.results_place import check_results_place
from fedleak.core.attack import Attack
from fedleak.core.errors import require
from fedleak.core.signals import Stopped
from fedleak.evaluation.confidence_sequence import EXPECTED_ROUNDS
from fedleak.evaluation.fitting import misfits
from fedleak.evaluation.gate import FAILED, UNCHECKED, UNDECIDED
from fedleak.evaluation.limits import Limit, read_gate
from fedleak.evaluation.reasons import Reason
from fedleak.evaluation.registry import chosen_attacks
from fedleak.evaluation.sequential_gate import measuring
from fedleak.evaluation.unmeasured_limits import fitting_metric, why_unmeasured
from fedleak.evaluation.watching import Look, Watch
from fedleak.reports.results_folder import folder_above, results_folder
from fedleak.reports.watch_view import LoggerName, WatchView, log_look, make_loggers
from fedleak_recorder.verdict import VERDICT

_PRIORITY = 5
_KEPT = "the scores of the audited rounds are kept, and the same command goes on from them"


def watch(
    recording: str,
    gate: list[str] | None = None,
    out: str | None = None,
    every: int = 1,
    until: int | None = None,
    expected_rounds: int | None = None,
    seed: int = 0,
    victims: int | None = None,
    only: list[str] | None = None,
    also: list[str] | None = None,
    slow: bool = False,
    learner: str | None = None,
    learner_arguments: dict[str, Any] | None = None,
    logger: list[LoggerName] | None = None,
) -> int:
    """Audits new rounds of a recording as they are written, and writes a verdict that servers read."""
    require(gate, "fedleak watch with a limit", "none", "E.g. --gate auc=0.6; see docs/audit/gate.md.")
    limits = read_gate(gate or [])
    chosen = chosen_attacks(only, also or ())
    asked = measuring(limits, chosen)
    folder = Path(out) if out is not None else folder_above(recording) / "watch"
    check_results_place(folder, recordings=[recording], holds_files=out is not None)
    torch.set_num_threads(1)
    os.nice(max(_PRIORITY - os.nice(0), 0))  # the training goes first
    with results_folder(folder, readable=VERDICT), WatchView(len(limits), expected_rounds or until) as view:
        loggers = make_loggers(logger or [], str(folder))
        audit = Watch(
            Path(recording),
            folder,
            limits,
            asked,
            open_recording=lambda: open_recording(recording, learner, learner_arguments, running=True),
            every=every,
            until=until,
            expected=expected_rounds or EXPECTED_ROUNDS,
            seed=seed,
            victims=victims,
            slow=slow,
        )
        last: Look | None = None
        try:
            for last in audit.looks():
                view.show(last)
                log_look(loggers, last)
        except Stopped as stopped:
            stopped.kept = _KEPT
            raise
        finally:
            for each in loggers:
                each.finalize("success")
    print("\n".join(f"round {last.round}: {state.sentence}" for state in last.states) if last else "no round to audit")
    unmeasured = []
    if last:
        unmeasured = [limit for limit, state in zip(limits, last.states, strict=True) if state.attack is None]
    if unmeasured:
        did_not_run = misfits(open_recording(recording, learner, learner_arguments, running=True), chosen)
        print("\n".join(_why_unmeasured(limit, chosen, did_not_run) for limit in unmeasured))
    print(f"verdict: {folder / VERDICT}" if last else f"no verdict in {folder}: no round was audited")
    return _status(last)


def _why_unmeasured(limit: Limit, attacks: Sequence[Attack], did_not_run: Mapping[str, Reason]) -> str:
    """Why no attack has measured a limit, and which metric its question has for the recorded network."""
    asked = [attack for attack in attacks if limit.applies_to(attack)]
    metric_here = fitting_metric(limit, attacks, did_not_run)
    return f"{limit.name}: {metric_here}{why_unmeasured(limit, asked, did_not_run)}"


def _status(last: Look | None) -> int:
    """Exit status as of ``audit --gate``."""
    if last is None or last.overall == "unknown":
        return UNCHECKED
    verdicts = {state.verdict for state in last.states}
    return FAILED if "exceeded" in verdicts else UNDECIDED if "open" in verdicts else 0
