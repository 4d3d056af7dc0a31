"""Attacks on what was recorded: ``python attack.py run | audit | reproduce | report | convert``."""

import re
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from jsonargparse import ArgumentParser, Namespace

from attacks.base import Attack, ViewError
from datamodules.deltas import Recording
from errors import InputError
from experiments import read_experiment
from experiments.base import RECOMMENDER_ATTACKS, Choice, Scale
from experiments.conversion import convert_dump
from experiments.identity_audit import has_known_devices, identity_attacks
from experiments.running import default_jobs, part_of, run_cells
from modules.recorded_learner import recorded_learner
from reports.audit import AUDITED, evaluate_recording
from reports.causes import LOWER_IS_BETTER, explainer
from reports.evaluation import Evaluation, summarise, told_missing
from reports.outcome import combine, finish, join_runs
from reports.results import Result
from reports.tables import attacks_then_baselines
from reports.wandb_log import shows_in_wandb

GATE_PASSED = 3


def run(attack: Attack, deltas: str, out: str | None = None, seed: int = 0, victims: int | None = None) -> int:
    """Runs one attack on a recording.

    Args:
        attack: the attack, with its hyper-parameters.
        deltas: folder of the recording.
        out: where the results go; None for the folder above the recording.
        seed: seed of the attack's draws.
        victims: attack only so many victims, drawn at random.
    """
    status, evaluation = _attack_recording([attack], deltas, out, seed, victims)
    if not evaluation.rows:
        raise ViewError(f"attack {attack.name!r} could not run: {evaluation.missing.get(attack.name, 'no victims')}")
    return status


def audit(
    deltas: str,
    out: str | None = None,
    seed: int = 0,
    victims: int | None = None,
    gate: dict[str, float] | None = None,
    wandb: str | None = None,
) -> int:
    """Runs every attack whose needs the recording meets.

    Args:
        deltas: folder of the recording.
        out: where the results go; None for the folder above the recording.
        seed: seed of the attacks' draws.
        victims: attack only so many victims, drawn at random.
        gate: by metric, how much an attack may tell: the highest mean, e.g. ``{"auc": 0.6}``, of distances and errors
            the lowest, e.g. ``{"l1": 0.3}``; exit status 3 when an attack tells more.
        wandb: Weights & Biases project to log table and figures to; offline unless you have logged in.
    """
    attacks = [kind() for name, kind in RECOMMENDER_ATTACKS.items() if not name.startswith("raifle")]
    if has_known_devices(Recording(deltas)):
        attacks = identity_attacks()
    status, evaluation = _attack_recording(attacks, deltas, out, seed, victims, wandb)
    print("\n".join(told_missing(evaluation.missing)))
    return GATE_PASSED if status == 0 and _exceeds(evaluation, gate or {}) else status


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
) -> int:
    """Fills a paper's table; finished cells are kept, so a run that was stopped goes on.

    Args:
        config: a file of configs/paper.
        root: folder that holds the data sets.
        data: only this data set.
        victims: attack only so many victims, drawn at random.
        seeds: number of trainings, from seed 0 on.
        scale: ``paper`` for all clients of every data set.
        out: where the results go; None for runs/NAME.
        jobs: cells run at once, each in a process with one thread; by default one per core where cells are small.
        part: only every N-th cell from the I-th on, as ``I/N`` with I from 0, for several machines that share ``out``;
            the report is made without it, once all parts are done.
        wandb: Weights & Biases project to log table and figures to; offline unless you have logged in.
    """
    start = time.perf_counter()
    experiment = read_experiment(Path(config))
    directory = Path(out or f"runs/{experiment.experiment}")
    if jobs is None:
        jobs = default_jobs(small_cells=experiment.small_cells)
    if jobs < 1:
        raise InputError(expected="--jobs of at least 1", found=str(jobs), way_out="Leave it out to use every core.")
    choice = Choice(root=root, data=data, scale=scale, seeds=seeds, victims=victims, progress=jobs == 1)
    cells = part_of(list(experiment.cells(choice)), part)
    evaluations = run_cells(cells, directory, jobs=jobs, name=experiment.experiment)
    if part is not None:
        return 0
    fingerprints = [experiment.source(name, root).fingerprint for name in experiment.names(choice)]
    source = {key: " ".join(print_[key] for print_ in fingerprints) for key in ("name", "sha256")}
    finish(
        combine(evaluations),
        directory=directory,
        experiment=experiment.experiment,
        data=source,
        seed=0,
        seconds=time.perf_counter() - start,
        metrics=experiment.metrics,
        threat_models={name: experiment.known_attacks[name].threat_model for name in experiment.attacks},
        shows=shows_in_wandb(wandb, directory),
    )
    return 0


def report(directories: list[str], out: str = "runs/report") -> int:
    """Joins the results of several runs into one page.

    Args:
        directories: folders that hold a results.json.
        out: where the page goes.
    """
    join_runs(
        [Path(d) for d in directories], Path(out), {n: kind.threat_model for n, kind in RECOMMENDER_ATTACKS.items()}
    )
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
    attacks: Sequence[Attack], deltas: str, out: str | None, seed: int, victims: int | None, wandb: str | None = None
) -> tuple[int, Evaluation]:
    start = time.perf_counter()
    recording = Recording(deltas)
    directory = Path(out) if out else Path(deltas).parent
    evaluation = evaluate_recording(recording, attacks, seed=seed, victims=victims)
    finish(
        evaluation,
        directory=directory,
        experiment=directory.resolve().name,
        data=recording.manifest.data,
        seed=seed,
        seconds=time.perf_counter() - start,
        metrics=AUDITED,
        threat_models={attack.name: attack.threat_model for attack in attacks if attack.name not in evaluation.missing},
        explain=explainer(recording, recorded_learner(recording), seed=seed),
        shows=shows_in_wandb(wandb, directory),
    )
    return 0, evaluation


def _exceeds(evaluation: Evaluation, gate: dict[str, float]) -> bool:
    attacks, _ = attacks_then_baselines(summarise(evaluation.rows))
    over = [r for r in attacks if r.metric in gate and _tells_more(r, gate[r.metric])]
    for result in over:
        sign = "<" if result.metric in LOWER_IS_BETTER else ">"
        print(f"gate passed: {result.attack} {result.metric} {result.mean:.3f} {sign} {gate[result.metric]}")
    return bool(over)


def _tells_more(result: Result, limit: float) -> bool:
    return result.mean < limit if result.metric in LOWER_IS_BETTER else result.mean > limit


def _parser() -> ArgumentParser:
    parser = ArgumentParser(prog="attack.py", description=__doc__)
    commands = parser.add_subcommands(dest="command")
    for name, function in COMMANDS.items():
        sub = ArgumentParser(description=(function.__doc__ or "").splitlines()[0])
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

    It also writes ``--gate auc=0.6``, which the parser knows as ``--gate.auc=0.6``.
    """
    plain: list[str] = []
    for argument in args:
        if plain and plain[-1] == "--gate" and re.match(r"[\w@-]+=", argument):
            plain[-1] = f"--gate.{argument}"
        else:
            plain.append(re.sub(r"^--data\.root(?==|$)", "--root", argument))
    return plain


def _built(parser: ArgumentParser, chosen: Namespace) -> Namespace:
    """The arguments with the attack in place of its description."""
    try:
        built: Namespace = parser.instantiate(chosen)
    except ValueError as error:
        raise InputError(expected="arguments that the attack takes", found=str(error), way_out="Mend them.") from None
    return built


def main(args: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status: 2 with one message for what a person can mend."""
    parser = _parser()
    try:
        chosen = parser.parse_args(_plain_names(sys.argv[1:] if args is None else args))
        name = chosen["command"]
        values = {k: v for k, v in vars(_built(parser, chosen)[name]).items() if not (name == "run" and k == "config")}
        return COMMANDS[name](**values)
    except (InputError, ViewError) as error:
        print(f"attack.py: {error}", file=sys.stderr)
        return 2


COMMANDS: dict[str, Callable[..., int]] = {
    "run": run,
    "audit": audit,
    "reproduce": reproduce,
    "report": report,
    "convert": convert,
}
POSITIONAL: dict[str, dict[str, dict[str, Any]]] = {
    "reproduce": {"config": {"type": str, "help": "a file of configs/paper"}},
    "report": {"directories": {"nargs": "+", "type": str, "help": "folders that hold a results.json"}},
}


if __name__ == "__main__":
    sys.exit(main())
