"""``fedleak run``: one attack on a recording."""

import shutil
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from fedleak.commands.shared import shared_options, value_types
from fedleak.commands.shared.command import Command, Option, Options, flag
from fedleak.core.errors import ViewError, require

if TYPE_CHECKING:
    from fedleak.core.attack import Attack
    from fedleak.evaluation.message_selection import MessageSelection
    from fedleak.reports.files import Format

_MOST_ROUNDS = 20
"""Number of rounds that an error lists."""


@dataclass(frozen=True)
class RunOptions(Options):
    """Values of the options of ``fedleak run``, with the attack and the selection of messages that they name."""

    recording: str
    attack: "Attack"
    messages: "MessageSelection"
    victims: int | None = None
    rounds: Sequence[int] | None = None
    learner: str | None = None
    learner_arguments: Mapping[str, Any] = field(default_factory=dict)
    out: str | None = None
    formats: Sequence["Format"] = ()
    persons: bool = False
    seed: int = 0
    history: bool = False

    @classmethod
    def read(cls, values: Mapping[str, Any]) -> Self:
        """Makes the attack and the selection of messages.

        Raises:
            InputError: there is no such attack, or one of the two does not take its arguments.
        """
        from fedleak.core import named
        from fedleak.evaluation.message_selection import MessageSelection
        from fedleak.evaluation.registry import make_attack

        attack = make_attack(values["attack"], values.get("attack_arguments", {}))
        about_messages = {**(values.get("messages") or {}), **values.get("messages_arguments", {})}
        messages = named.build(MessageSelection, about_messages, where="--messages", option="--messages.")
        fields = {**values, "attack": attack, "messages": messages}
        fields.pop("attack_arguments", None)
        fields.pop("messages_arguments", None)
        return cls(**fields)


def run(options: RunOptions) -> int:
    """Runs one attack on a recording."""
    from fedleak.commands.shared.open_recording import open_recording
    from fedleak.commands.shared.results_place import check_results_place, only_command
    from fedleak.evaluation.audit_plan import AuditPlan
    from fedleak.evaluation.auditing import run_audit
    from fedleak.reports.results_folder import folder_above, print_outputs, results_folder, results_in, shell_command
    from fedleak.reports.write_run import write_run

    recording = open_recording(options.recording, options.learner, options.learner_arguments)
    _check_rounds(options.rounds or (), recording.rounds)
    attack = options.attack
    folder = options.out or folder_above(options.recording) / f"run-{attack.name}"
    check_results_place(folder, recordings=[options.recording], holds_files=options.out is not None)
    if options.out is not None:
        check_own_folder(Path(options.out))
    limits = {}
    if options.victims is not None:
        limits[attack.name] = options.victims
    with results_folder(folder) as directory, only_command(directory):
        plan = AuditPlan(
            recording=recording,
            attacks=[attack],
            seed=options.seed,
            limits=limits,
            rounds=options.rounds,
            history=options.history,
            messages=options.messages,
            slow="all",
            describe=False,
        )
        result = run_audit(plan)
        if result.scores.empty:
            reason = result.missing.get(attack.name, "no victims")
            raise ViewError(f"attack {attack.name!r} could not run: {reason}")
        write_run(result, directory=directory, formats=options.formats, persons=options.persons)
    print_outputs(results_in(directory), then=shell_command("audit", options.recording, why="all attacks"))
    return 0


def _check_rounds(chosen: Sequence[int], recorded: Sequence[int]) -> None:
    """Checks that rounds are recorded."""
    missing = [number for number in chosen if number not in recorded]
    listed = ", ".join(map(str, recorded[:_MOST_ROUNDS]))
    if len(recorded) > _MOST_ROUNDS:
        listed += ", ..."
    way_out = "Name recorded rounds, or omit --rounds for all."
    require(not missing, f"--rounds among {listed}", ", ".join(map(str, missing)), way_out)


def check_own_folder(directory: Path) -> None:
    """Checks that a folder holds no results of several attacks, which those of one would replace."""
    from fedleak.evaluation.run import RESULTS
    from fedleak.evaluation.stored_run import read_results

    if (directory / RESULTS).is_file():
        attacks = read_results(directory).results["attack"].nunique()
        present = f"the results of {attacks} attacks in {directory}"
        require(attacks <= 1, "--out: a folder of its own", present, "Name another folder, or omit --out.")


def _with_configuration(values: Mapping[str, Any]) -> dict[str, Any]:
    """Adds what only the file of ``--config`` sets; ``attack`` there may be a class path with arguments."""
    from fedleak.tables.table_file import check_keys, read_mapping

    values = dict(values)
    if "config" not in values:
        return values
    path = Path(values.pop("config"))
    config = read_mapping(path, "options of fedleak run in YAML, UTF-8")
    require("deltas" not in config, f"the key recording in {path}", "deltas", "Rename it: recording: DIR.")
    # Keys of the file are the options' names; a value of the command line replaces that of the file.
    keys = [option.name.removeprefix("--") for option in COMMAND.every_option if option.name != "--config"]
    check_keys(config, keys, f"options of fedleak run in {path}")
    if "format" in config:
        config["formats"] = config.pop("format")
    attack: Any = config.pop("attack", None)
    arguments = None
    if isinstance(attack, Mapping):
        arguments = attack.get("init_args")
        attack = attack.get("class_path")
    # Another attack of the command line does not take the arguments of that in the file.
    if values.setdefault("attack", attack) == attack:
        values["attack_arguments"] = {**(arguments or {}), **values.get("attack_arguments", {})}
    return {**config, **values}


def _names_of_attacks() -> str:
    """The names that ``--attack`` takes, by question."""
    from fedleak.evaluation.attack_descriptions import described

    names: dict[str, list[str]] = {}
    for attack in described():
        names.setdefault(attack.family, []).append(attack.name)
    width = shutil.get_terminal_size().columns - 2
    heading = (
        "attacks, by question (name, or question/name where several have it; `fedleak list --all` describes them):"
    )
    lines = textwrap.wrap(heading, width)
    for family, names_in_family in names.items():
        lines += textwrap.wrap(
            f"{family}/ {', '.join(names_in_family)}",
            width,
            initial_indent="  ",
            subsequent_indent="    ",
            break_on_hyphens=False,
        )
    return "\n".join(lines)


COMMAND = Command(
    heading="audits",
    place=30,
    summary="runs one attack on a recording, with hyper-parameters of your own",
    groups={
        shared_options.AUDITED: [
            Option(
                "recording",
                "folder of the recording; required here or in --config",
                required=True,
                parsing={"metavar": "DIR", "nargs": "?"},
            ),
            Option(
                "--attack",
                "name of `fedleak list --all` or class path; its hyper-parameters are --attack.NAME VALUE",
                required=True,
                further="attack_arguments",
                parsing={"metavar": "NAME"},
            ),
            shared_options.victims("clients to attack, drawn at random", "all"),
            Option(
                "--rounds",
                "numbers of the rounds to attack, from 0, as 0,1",
                "all",
                parsing={"type": value_types.rounds, "metavar": "NUMBERS"},
            ),
            shared_options.LEARNER,
        ],
        shared_options.WRITTEN: [
            shared_options.out("folder of the results", "run-NAME next to the recording"),
            shared_options.FORMATS,
            shared_options.PERSONS,
        ],
        shared_options.ADVANCED: [
            shared_options.SEED,
            Option("--config", "values of these options, in YAML", "none", parsing={"metavar": "FILE"}),
            flag("--history", "also give the attack the server's views of the same clients in earlier rounds"),
            Option(
                "--messages",
                "messages for attacks on all messages together, as JSON or --messages.NAME VALUE",
                "all",
                further="messages_arguments",
                parsing={"type": value_types.value, "metavar": "JSON"},
            ),
        ],
    },
    options=RunOptions,
    run=run,
    epilogue=_names_of_attacks,
    complete=_with_configuration,
)
