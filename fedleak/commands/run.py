"""``fedleak run``: one attack on a recording."""

from pathlib import Path
from typing import Any

from fedleak.commands.open_recording import open_recording
from fedleak.commands.results_place import check_results_place, only_command
from fedleak.core.attack import Attack
from fedleak.core.errors import ViewError, require
from fedleak.evaluation.audit_plan import AuditPlan
from fedleak.evaluation.auditing import run_audit
from fedleak.evaluation.message_selection import MessageSelection
from fedleak.evaluation.registry import make_attack
from fedleak.evaluation.run import RESULTS
from fedleak.evaluation.stored_run import read_results
from fedleak.reports.files import Format
from fedleak.reports.results_folder import folder_above, print_outputs, results_folder, results_in, shell_command
from fedleak.reports.write_run import write_run


def run(
    attack: Attack | str,
    recording: str,
    out: str | None = None,
    seed: int = 0,
    victims: int | None = None,
    rounds: list[int] | None = None,
    history: bool = False,
    messages: MessageSelection | None = None,
    learner: str | None = None,
    learner_arguments: dict[str, Any] | None = None,
    format: list[Format] | None = None,
    persons: bool = False,
) -> int:
    """Runs one attack on a recording."""
    opened = open_recording(recording, learner, learner_arguments)
    known = opened.rounds
    missing = [number for number in rounds or () if number not in known]
    recorded = f"--rounds among {', '.join(map(str, known[:20]))}{', ...' if len(known) > 20 else ''}"
    require(not missing, recorded, ", ".join(map(str, missing)), "Name recorded rounds, or omit --rounds for all.")
    attack = make_attack(attack)
    place = out or folder_above(recording) / f"run-{attack.name}"
    check_results_place(place, recordings=[recording], holds_files=out is not None)
    if out is not None:
        check_own_folder(Path(out))
    with results_folder(place) as directory, only_command(directory):
        plan = AuditPlan(
            recording=opened,
            attacks=[attack],
            seed=seed,
            limits={} if victims is None else {attack.name: victims},
            rounds=rounds,
            history=history,
            messages=messages or MessageSelection(),
            slow="all",
            describe=False,
        )
        found = run_audit(plan)
        if found.scores.empty:
            raise ViewError(f"attack {attack.name!r} could not run: {found.missing.get(attack.name, 'no victims')}")
        write_run(found, directory=directory, formats=format or (), persons=persons)
    print_outputs(results_in(directory), then=shell_command("audit", recording, why="all attacks"))
    return 0


def check_own_folder(directory: Path) -> None:
    """Checks that a folder holds no results of several attacks, which those of one would replace."""
    if (directory / RESULTS).is_file():
        attacks = read_results(directory).results["attack"].nunique()
        found = f"the results of {attacks} attacks in {directory}"
        require(attacks <= 1, "--out: a folder of its own", found, "Name another folder, or omit --out.")
