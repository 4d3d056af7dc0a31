"""Attacks on what was recorded: ``python attack.py run | audit | list | reproduce | report | convert``."""

import json
import re
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import yaml
from jsonargparse import ArgumentParser, Namespace

from attacks.base import Attack
from attacks.registry import REGISTRY, built, check_distinct, find
from command_line import OneLineParser
from datamodules.recordings.recording import Recording
from evaluation.diagnosis import explainer
from evaluation.evaluate import evaluate_recording, metrics_of, nothing_scored, reasons, relevant
from evaluation.gate import Gate, check_limits, gate_status, read_gate
from evaluation.gate import gate as check_gate
from evaluation.message_selection import MessageSelection
from evaluation.runner import Evaluation
from evaluation.summary import summarise
from experiments.conversion import convert_dump
from experiments.running import default_jobs, joined_fingerprints, run_table
from experiments.table import Choice, Scale, read_table
from modules.learners.recorded_learner import recorded_learner
from protocol.errors import InputError
from protocol.view import ViewError
from reports.run import Run
from reports.tables import aligned
from reports.wandb_log import shows_in_wandb
from reports.write_run import combine, join_runs, write_run
from signals import Stopped, ends_on_signals, leave

_SEEDS = 2**63


def run(
    attack: Attack | str,
    deltas: str,
    out: str | None = None,
    seed: int = 0,
    victims: int | None = None,
    rounds: list[int] | None = None,
    history: bool = False,
    messages: MessageSelection | None = None,
) -> int:
    """Runs one attack on a recording.

    Args:
        attack: the attack, by a name of ``attack.py list`` or a class path, with its hyper-parameters.
        deltas: folder of the recording.
        out: where the results go; None for run-ATTACK next to the recording.
        seed: seed of the attack's draws.
        victims: attack only so many clients of the recording, drawn at random from its first rounds.
        rounds: numbers of the rounds to attack, from 0; None for all.
        history: give the attack what the server saw of the same clients in earlier rounds.
        messages: what an attack on all messages together gets; None for all of them.
    """
    attack = built(attack)
    directory = Path(out or _next_to(deltas) / f"run-{attack.name}")
    options: dict[str, Any] = {"rounds": rounds, "history": history, "messages": messages or MessageSelection()}
    limits = {} if victims is None else {attack.name: victims}
    _check_numbers(victims=victims)
    evaluation, done = _attack_recording([attack], Recording(deltas), directory, seed, limits=limits, **options)
    if done is None:
        raise ViewError(f"attack {attack.name!r} could not run: {evaluation.missing.get(attack.name, 'no victims')}")
    return 0


def audit(
    deltas: str,
    out: str | None = None,
    seed: int = 0,
    victims: int | None = None,
    gate: dict[str, float] | None = None,
    wandb: str | None = None,
    attacks: list[str] | None = None,
    slow: bool = False,
) -> int:
    """Runs every attack whose needs the recording meets.

    Args:
        deltas: folder of the recording.
        out: where the results go; None for the folder above the recording.
        seed: seed of the attacks' draws.
        victims: attack only so many victims, drawn at random.
        gate: METRIC=LIMIT, how much an attack may infer: the highest mean over people, e.g. ``auc=0.6``; of distances
            and errors the lowest, e.g. ``l1=0.3``. Baselines are exempt. Exit status 3 when an attack exceeds a limit,
            4 when a limit could not be checked: nothing measured it, or fewer than 5 people have a value and the
            interval is not wholly beyond the limit.
        wandb: Weights & Biases project to log table and figures to; offline unless you have logged in.
        attacks: attacks of your own to add, as class paths such as ``my_package.MyAttack``.
        slow: run the attacks that take minutes too, on a few clients of the first round; else a line names them.
    """
    added = [built(name) for name in attacks or []]
    check_limits(gate or {})
    chosen = [*(kind() for kind in REGISTRY.values()), *added]
    check_distinct([type(attack) for attack in chosen])
    limits = None if gate is None else check_gate(gate, chosen)
    recording, directory = Recording(deltas), Path(out or _next_to(deltas))
    options: dict[str, Any] = {"gate": limits, "wandb": wandb, "slow": "few" if slow else "none"}
    evaluation, done = _attack_recording(chosen, recording, directory, seed, victims=victims, **options)
    if done is None and limits is None:
        raise nothing_scored(evaluation.missing, chosen)
    verdicts = [] if limits is None else limits(summarise(evaluation), evaluation.missing)
    print("\n".join([*reasons(evaluation.missing), *(verdict.message for verdict in verdicts)]))
    return gate_status(verdicts)


def list_attacks() -> int:
    """Prints every attack by question: exact or statistical, its paper, its cost and what it needs."""
    table = pd.DataFrame(
        {
            "question": kind.family,
            "name": kind.name,
            "infers": kind.tells,
            "kind": "baseline" if kind.baseline else "exact" if kind.exact else "statistical",
            "paper": "; ".join(kind.references) or ("" if kind.baseline else "ours"),
            "cost": kind.cost,
            "needs": ", ".join(kind.threat_model.needs),
        }
        for kind in REGISTRY.values()
    )
    for (question, infers), group in table.groupby(["question", "infers"], sort=False):
        rows = group.drop(columns=["question", "infers"])
        print("\n".join(["", f"{question}: {infers}", *aligned(rows)]))
    return 0


def reproduce(
    config: str,
    root: str | None = None,
    data: str | None = None,
    victims: int | None = None,
    seeds: int = 1,
    scale: Scale = "small",
    out: str | None = None,
    jobs: int | None = None,
    part: str | None = None,
    wandb: str | None = None,
    set: dict[str, Any] | None = None,
    attacks: list[str] | None = None,
    dry_run: bool = False,
) -> int:
    """Fills a paper's table; finished trainings and cells are kept, so a run that was stopped goes on.

    A cell is read back only if its table, its data, the code and the packages are what they were; else it is run again.

    Args:
        config: a file of configs/paper, or one of your own.
        root: folder that holds the data sets.
        data: only this data set: a folder's name, or the class path of a data module of the same kind.
        victims: attack only so many victims, drawn at random.
        seeds: least number of trainings of each cell, from seed 0 on.
        scale: ``paper`` for all clients of every data set.
        out: where the results go; None for runs/NAME.
        jobs: trainings run at once, each in a process with one thread; by default one per core where these are small.
        part: only every N-th training from the I-th on, as ``I/N`` with I from 0, for several machines that share
            ``out``; the report is made without it, once all parts are done.
        wandb: Weights & Biases project to log table and figures to; offline unless you have logged in.
        set: KEY=VALUE, any key of ``train.py`` in every cell, e.g. ``model.local.epochs=5``; as often as wanted.
        attacks: further attacks, by names of ``attack.py list`` or class paths.
        dry_run: run nothing; print the commands that make each cell.
    """
    start = time.perf_counter()
    _check_numbers(victims=victims, seeds=seeds)
    if jobs is not None and jobs < 1:
        raise InputError(expected="--jobs of at least 1", found=str(jobs), way_out="Leave it out to use every core.")
    table = read_table(Path(config))
    directory = Path(out or f"runs/{table.name}")
    jobs = jobs or table.jobs or default_jobs()
    choice = Choice(
        root=root,
        data=data,
        scale=scale,
        seeds=seeds,
        victims=victims,
        overrides=set or {},
        attacks=attacks or [],
        out=directory,
        progress=jobs == 1,
    )
    cells = table.cells(choice)
    if dry_run:
        print("\n".join(line for cell in cells for line in [f"# {cell.key}", *cell.commands()]))
        return 0
    done = run_table(cells, jobs=jobs, name=table.name, part=part)
    if part is not None:
        return 0
    evaluation = combine([finished.evaluation for _, finished in done])
    if evaluation.scores.empty:
        raise nothing_scored(evaluation.missing, [one for cell in cells for one in cell.make_attacks().values()])
    write_run(
        evaluation,
        directory=directory,
        experiment=table.name,
        data=joined_fingerprints(cells),
        seed=0,
        seconds=time.perf_counter() - start,
        metrics=table.metrics,
        read_back=[cell.key for cell, finished in done if finished.read_back],
        shows=shows_in_wandb(wandb, directory),
    )
    return 0


def report(directories: list[str], out: str = "runs/report") -> int:
    """Joins the results of several runs into one page.

    Args:
        directories: folders that hold a results.json.
        out: where the page goes.
    """
    join_runs([Path(directory) for directory in directories], Path(out))
    return 0


def convert(manifest: str, out: str) -> int:
    """Makes a recording of what another system wrote as .npz or .safetensors files; docs/recording-format.md says how.

    Args:
        manifest: YAML or JSON that says what the files hold.
        out: folder of the recording.
    """
    rounds = convert_dump(Path(manifest), Path(out))
    print(f"{rounds} rounds: {out}")
    return 0


def _attack_recording(
    attacks: Sequence[Attack],
    recording: Recording,
    directory: Path,
    seed: int,
    gate: Gate | None = None,
    wandb: str | None = None,
    **options: Any,
) -> tuple[Evaluation, Run | None]:
    """The scores, and what was written of them: nothing, None, where no attack could be scored.

    Args:
        attacks: what to run.
        recording: what the server saw.
        directory: where the results go.
        seed: of the attacks' draws.
        gate: see `evaluation.gate`.
        wandb: Weights & Biases project to log to.
        options: further arguments of `evaluate_recording`.
    """
    start = time.perf_counter()
    _check_numbers(seed=seed, victims=options.get("victims"))
    evaluation = relevant(evaluate_recording(recording, attacks, seed=seed, **options), attacks)
    if evaluation.scores.empty:
        return evaluation, None
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
    )
    return evaluation, run


def _next_to(deltas: str) -> Path:
    """The folder above a recording, wherever a relative path leads."""
    return Path(deltas).resolve().parent


def _check_numbers(*, seed: int = 0, victims: int | None = None, seeds: int = 1) -> None:
    if not 0 <= seed < _SEEDS:
        raise InputError(expected="--seed from 0 to 2**63 - 1", found=str(seed), way_out="Give another one.")
    for name, number in (("--victims", victims), ("--seeds", seeds)):
        if number is not None and number < 1:
            raise InputError(expected=f"{name} of at least 1", found=str(number), way_out="Give more, or leave it out.")


class AttackParser(OneLineParser):
    """The parser of this command."""

    program = "attack.py"
    kinds = (Attack,)


def _parser() -> ArgumentParser:
    parser = AttackParser(prog="attack.py", description=__doc__)
    commands = parser.add_subcommands(dest="command")
    for name, function in COMMANDS.items():
        sub = AttackParser(description=(function.__doc__ or "").splitlines()[0])
        positional = POSITIONAL.get(name, {})
        for argument, options in positional.items():
            sub.add_argument(argument, **options)
        if name == "run":
            sub.add_argument("--config", action="config")
        sub.add_function_arguments(function, as_positional=False, skip=set(positional))
        commands.add_subcommand(name, sub)
    return parser


def _plain_names(args: Sequence[str]) -> list[str]:
    """The house writes ``--data.root DIR --data NAME``; a parser cannot hold a key both as value and as group.

    It also writes ``--gate auc=0.6`` and ``--attacks my_package.MyAttack``, as often as wanted, which the parser knows
    as JSON, and names of attacks, which it knows as class paths.
    """
    plain: list[str] = []
    added: list[str] = []
    limits: dict[str, float] = {}
    overrides: dict[str, Any] = {}
    left = iter(args)
    for argument in left:
        head, given, value = argument.partition("=")
        if head == "--gate":
            limits |= read_gate(value if given else next(left, ""))
        elif head == "--attacks":
            added += (value if given else next(left, "")).strip("[]").replace(",", " ").split()
        elif head == "--attack":
            plain += ["--attack", _class_path(value if given else next(left, ""))]
        elif head == "--set":
            overrides |= _override(value if given else next(left, ""))
        elif argument == "--dry-run":
            plain.append("--dry_run=true")
        elif head.startswith("--gate."):
            limits |= read_gate(f"{head.removeprefix('--gate.')}={value}")
        else:
            plain.append(re.sub(r"^--data\.root(?==|$)", "--root", argument))
    plain += ["--gate", json.dumps(limits)] if limits else []
    plain += ["--set", json.dumps(overrides)] if overrides else []
    return [*plain, "--attacks", json.dumps(added)] if added else plain


def _override(text: str) -> dict[str, Any]:
    """A key of ``train.py`` with its value, from KEY=VALUE."""
    key, given, value = text.partition("=")
    if not given:
        raise InputError(
            expected="--set KEY=VALUE", found=text or "nothing", way_out="E.g. --set model.local.epochs=5."
        )
    return {key: yaml.safe_load(value)}


def _class_path(name: str) -> str:
    """The class path of an attack's name; of a class name too, such as ``Direction``."""
    known = [kind for kind in REGISTRY.values() if kind.__name__ == name]
    kind = known[0] if len(known) == 1 else find(name)
    return f"{kind.__module__}.{kind.__qualname__}"


def _built(parser: ArgumentParser, chosen: Namespace) -> Namespace:
    """The arguments with the attack in place of its description."""
    try:
        built: Namespace = parser.instantiate(chosen)
    except ValueError as error:
        raise InputError(expected="arguments that the attack takes", found=str(error), way_out="Fix them.") from None
    return built


def main(args: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status: 2 with one message for what a person can fix, 128 + n of signal n."""
    try:
        with ends_on_signals():
            return _run_command(sys.argv[1:] if args is None else args)
    except (InputError, ViewError) as error:
        print(f"attack.py: {error}", file=sys.stderr)
    except UnicodeDecodeError as error:
        print(f"attack.py: expected a file of UTF-8 text; found {error}. Save it as UTF-8.", file=sys.stderr)
    except OSError as error:
        wanted = "expected files and folders that can be read and written, and room for them"
        print(f"attack.py: {wanted}; found {error}. What was written before is whole.", file=sys.stderr)
    except Stopped as stopped:
        print(f"attack.py: stopped by {stopped}; a table's finished cells are kept for its next run", file=sys.stderr)
        return stopped.status
    return 2


def _run_command(args: Sequence[str]) -> int:
    parser = _parser()
    chosen = parser.parse_args(_plain_names(args))
    name = chosen["command"]
    values = {k: v for k, v in vars(_built(parser, chosen)[name]).items() if not (name == "run" and k == "config")}
    return COMMANDS[name](**values)


COMMANDS: dict[str, Callable[..., int]] = {
    "run": run,
    "audit": audit,
    "list": list_attacks,
    "reproduce": reproduce,
    "report": report,
    "convert": convert,
}
POSITIONAL: dict[str, dict[str, dict[str, Any]]] = {
    "reproduce": {"config": {"type": str, "help": "a file of configs/paper"}},
    "report": {"directories": {"nargs": "+", "type": str, "help": "folders that hold a results.json"}},
}


if __name__ == "__main__":
    leave(main())
