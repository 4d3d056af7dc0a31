"""Command line of ``attack.py``: its options, of which only the requested command is imported."""

import argparse
import difflib
import importlib
import shutil
import textwrap
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn, get_args

from fedleak.core.bounded_yaml import load_yaml
from fedleak.core.errors import InputError, require
from fedleak.core.progress import say_what_starts


def _truth(text: str) -> bool:
    require(text in ("true", "false"), "true or false after the option, or nothing", text, "Write one of them.")
    return text == "true"


def _seed(text: str) -> int:
    require(text.isdecimal() and int(text) < 2**63, "--seed from 0 to 2**63 - 1", text, "Set a seed in this range.")
    return int(text)


def _at_least_one(name: str) -> Callable[[str], int]:
    def number(text: str) -> int:
        right = text.isdecimal() and int(text) >= 1
        require(right, f"{name} of at least 1", text, "Set at least 1, or omit it.")
        return int(text)

    return number


def _words(text: str) -> list[str]:
    """Words of a list: ``a,b`` or ``[a, b]``."""
    return text.strip("[]").replace(",", " ").split()


def _rounds(text: str) -> list[int]:
    return [int(word) for word in _words(text)]


def _formats(text: str) -> list[str]:
    from fedleak.reports.files import Format

    for word in _words(text):
        require(word in get_args(Format), f"--format among {', '.join(get_args(Format))}", word, "Write one of them.")
    return _words(text)


def _value(text: str) -> Any:
    """Value of an option of a class, or of a key of ``train.py``, in YAML."""
    try:
        return load_yaml(text)
    except ValueError:
        return text


def _override(text: str) -> tuple[str, Any]:
    """Key of ``train.py`` with its value, from KEY=VALUE."""
    key, given, value = text.partition("=")
    require(given, "--set KEY=VALUE", text or "nothing", "E.g. --set model.local.epochs=5.")
    return key, _value(value)


def _from_zero(text: str) -> int:
    require(text.isdecimal(), "--until with the number of a round, from 0", text, "Set a number.")
    return int(text)


def _minutes(text: str) -> float:
    number = text.replace(".", "", 1)
    require(number.isdecimal() and float(text) > 0, "--minutes with a number above 0", text, "Set a number, e.g. 5.")
    return float(text)


def _loggers(text: str) -> list[str]:
    names = ("csv", "mlflow", "tensorboard", "wandb")
    for word in _words(text):
        require(word in names, f"--logger among {', '.join(names)}", word, "Write one of them.")
    return _words(text)


_FLAG: dict[str, Any] = {"nargs": "?", "const": True, "type": _truth, "metavar": "true"}
_OPTIONS: dict[str, dict[str, Any]] = {
    "directories": {
        "nargs": "+",
        "metavar": "DIR",
        "help": "folders that hold a results.json; the first is the reference of what changed",
    },
    "recording": {"metavar": "DIR", "help": "folder of the recording; for a watch, it need not exist yet"},
    "directory": {"metavar": "DIR", "help": "folder that holds a results.json"},
    "bundle": {"metavar": "BUNDLE", "help": "archive that export --to bundle wrote"},
    "config": {"metavar": "TABLE", "help": "a table: its file, or its name in configs/paper, e.g. raifle_table5"},
    "--config": {"metavar": "FILE", "help": "values of the options below, in YAML"},
    "--attack": {"help": "name of `attack.py list` or class path; its hyper-parameters are --attack.NAME VALUE"},
    "--deltas": {
        "metavar": "DIR",
        "help": "folder of the recording, which run and audit need; convert copies it as publish does",
    },
    "--manifest": {"metavar": "FILE", "help": "YAML or JSON file that describes the files"},
    "--out": {"metavar": "DIR", "help": "folder of the results, or of the recording that convert and publish write"},
    "--question": {"metavar": "NAME", "help": "only attacks of a family, or of those with a word in their names"},
    "--fits": {
        "metavar": "DIR",
        "help": "only attacks that a recording has the data for, and the reasons for which the others do not fit",
    },
    "--data.root": {"dest": "root", "metavar": "DIR", "help": "folder of the data sets"},
    "--data": {"help": "use only this data set: a folder's name, or the class path of a data module of the same kind"},
    "--seed": {"type": _seed, "help": "seed of the attacks' draws; 0 by default"},
    "--seeds": {
        "type": _at_least_one("--seeds"),
        "help": "smallest number of trainings of each cell, from seed 0 on; 1 by default",
    },
    "--victims": {"type": _at_least_one("--victims"), "help": "number of clients to attack, drawn at random"},
    "--rounds": {"type": _rounds, "help": "numbers of the rounds to attack, from 0, as 0,1; all by default"},
    "--history": {**_FLAG, "help": "also give the attack the server's views of the same clients in earlier rounds"},
    "--messages": {
        "type": _value,
        "help": "messages for attacks on all messages together, as JSON or --messages.NAME VALUE; all by default",
    },
    "--learner": {
        "help": "a learner of the project, e.g. Pretrained, or from outside, e.g. my_package.MyLearner, whose clients"
        " attacks simulate, instead of the learner in the manifest; its arguments are --learner.NAME VALUE. Or the"
        " module of the learner that the manifest names. It is imported, so name only code that you trust"
    },
    "--gate": {
        "action": "append",
        "metavar": "METRIC=LIMIT",
        "help": "limit on what an attack infers, or QUESTION/METRIC=LIMIT: the highest mean over victims, e.g. auc=0.6;"
        " for distances and errors the lowest, e.g. l1=0.3. A question is a family of attacks, e.g."
        " record-membership/auc=0.6. change=0.05 limits how much more is inferred than in --reference, and"
        " beyond-baseline=0.05 than by the best baseline. Baselines are exempt. The 95%% interval decides: exit status"
        " 3 if that of an attack is entirely beyond a limit, 5 if one contains it, hides exposed clients or has fewer"
        " than 5 victims, 4 if no attack measured the metric",
    },
    "--reference": {
        "metavar": "RUN",
        "help": "folder of an earlier run: the report starts with what changed since then, on the same clients if"
        " FEDLEAK_KEY was the same",
    },
    "--about": {
        "choices": ("clients", "recording"),
        "help": "whom limits of --gate are about: clients like the recorded ones (an inference, the default), or the"
        " clients of this recording, for a federation whose clients are all recorded (a fact, if all are attacked)",
    },
    "--attacks": {
        "action": "extend",
        "type": _words,
        "help": "additional attacks, by names of `attack.py list` or class paths such as my_package.MyAttack",
    },
    "--slow": {
        **_FLAG,
        "help": "also run attacks that take minutes, on a few clients of the first round; otherwise a line lists them",
    },
    "--statement": {
        "metavar": "FILE",
        "help": "what the controller declares: a changed copy of docs/system-example.yaml; writes statement.html and"
        " statement.json. Its limits are limits of the gate",
    },
    "--what-if": {
        "metavar": "FILE",
        "help": "defences in YAML, see docs/what-if.md: what attacks would find if clients had used each of them, and"
        " how much of the round's mean update it leaves",
    },
    "--control": {
        "choices": ("others", "noise", "priors"),
        "help": "give attacks the update of another client, or noise, in the place of each update: every attack has to"
        " fall to chance, and bits to 0; or priors that say nothing, which must not make an attack worse. Results go to"
        " a folder of their own",
    },
    "--scale": {"choices": ("small", "paper"), "help": "paper for all clients of every data set"},
    "--jobs": {
        "type": _at_least_one("--jobs"),
        "help": "processes, each with one thread, for the trainings of a table, the attacks of an audit, or the"
        " defences of --what-if; one per core by default, but for large trainings, and one, with all threads, for an"
        " audit",
    },
    "--minutes": {
        "type": _minutes,
        "metavar": "N",
        "help": "time for an audit: attacks that do not fit in are left out, named with the time that they need; 30 by"
        " default, unbounded with --slow, --part and --what-if",
    },
    "--part": {
        "metavar": "I/N",
        "help": "every N-th training of a table, or part of an audit's attacks, from the I-th on, with I from 0, for"
        " several machines that share --out; run the command without it after all parts to write the report",
    },
    "--set": {
        "action": "append",
        "type": _override,
        "metavar": "KEY=VALUE",
        "help": "any key of train.py in every cell, e.g. model.local.epochs=5; repeatable",
    },
    "--dry-run": {"action": "store_true", "help": "print the commands of each cell without running them"},
    "--wandb": {
        "metavar": "PROJECT",
        "help": "Weights & Biases project to log table and figures to; offline unless you have logged in",
    },
    "--format": {
        "action": "extend",
        "type": _formats,
        "help": "formats of further files, e.g. svg,pdf,csv,tex: figures into figures/, tables into tables/",
    },
    "--every": {
        "type": _at_least_one("--every"),
        "help": "number of new rounds after which they are audited; 1 by default",
    },
    "--until": {
        "type": _from_zero,
        "metavar": "ROUND",
        "help": "number of the last round to wait for; otherwise the watch ends when the recording is closed",
    },
    "--expected-rounds": {
        "type": _at_least_one("--expected-rounds"),
        "metavar": "N",
        "help": "rounds of the training, for the time left and for narrow intervals; another number is no error. 100 by"
        " default",
    },
    "--logger": {
        "action": "extend",
        "type": _loggers,
        "metavar": "NAME",
        "help": "loggers of Lightning for the numbers of each round: csv, tensorboard, wandb or mlflow",
    },
    "--to": {
        "metavar": "NAME",
        "help": "an exporter by its name, e.g. sarif or bundle, see docs/evidence.md, or by a class path such as"
        " my_package.MyExporter; its options are --to.NAME VALUE",
    },
    "--allowed-signers": {
        "metavar": "FILE",
        "help": "who may sign, in the format of ssh-keygen: the bundle must be signed by one of them",
    },
    "--persons": {
        **_FLAG,
        "help": "keep the clients' pseudonyms and numbers in the results, and show single clients on the page, which"
        " then must not be passed on; otherwise the page shows numbers over several clients, and in scores.csv each"
        " client gets a number that needs FEDLEAK_KEY or, without it, is new in each call",
    },
}
"""Arguments of `argparse.ArgumentParser.add_argument` by option; an option means the same in all commands."""
_ALIASES = {"--data.root": ("--root",)}
_RECORDING = ("--deltas", "--out", "--seed", "--victims", "--learner", "--format", "--persons")
_COMMANDS: dict[str, tuple[str, tuple[str, ...]]] = {
    "demo": (
        "Trains on handwritten digits and on generated clicks, attacks the recordings, and writes one report.",
        ("--out",),
    ),
    "run": (
        "Runs one attack on a recording.",
        ("--config", "--attack", *_RECORDING, "--rounds", "--history", "--messages"),
    ),
    "audit": (
        "Runs all attacks for which the recording has the needed data, and describes the updates in any case.",
        (
            *(*_RECORDING, "--attacks", "--slow", "--control", "--what-if", "--minutes", "--jobs", "--part"),
            *("--gate", "--about", "--reference", "--statement", "--wandb"),
        ),
    ),
    "watch": (
        "Audits the rounds of a recording while they are written, and writes a verdict that the server reads.",
        (
            *("recording", "--gate", "--every", "--until", "--expected-rounds", "--out", "--seed", "--victims"),
            *("--attacks", "--slow", "--learner", "--logger"),
        ),
    ),
    "list": (
        "Prints every attack by question: exact or statistical, its threat model, its paper, its cost and its needs.",
        ("--question", "--fits", "--learner"),
    ),
    "reproduce": (
        "Computes a paper's table; finished trainings and cells are cached, so an interrupted run can resume.",
        (
            *("config", "--data.root", "--data", "--out", "--victims", "--seeds", "--scale", "--jobs", "--part"),
            *("--set", "--attacks", "--dry-run", "--wandb", "--format", "--persons"),
        ),
    ),
    "report": ("Joins the results of several runs into one page.", ("directories", "--out", "--format", "--persons")),
    "export": (
        "Writes the results of a run in a format of others, or sends them to a service.",
        ("directory", "--to"),
    ),
    "verify": (
        "Checks hashes, structure and signature of an evidence bundle: status 0, or 3 if it is not as it was written.",
        ("bundle", "--allowed-signers"),
    ),
    "publish": (
        "Copies a recording to pass it on, without ground truth, records of clients and paths; says what it allows.",
        ("recording", "--out"),
    ),
    "convert": (
        "Converts .npz or .safetensors files of another system to a recording, see docs/recording-format.md.",
        ("--manifest", "--deltas", "--out"),
    ),
}
"""What each command does, and its options."""
_REQUIRED = {
    "audit": ("deltas",),
    "run": ("attack", "deltas"),
    "convert": ("out",),
    "publish": ("out",),
    "watch": ("gate",),
    "export": ("to",),
}
"""Options without a default."""
_BELOW = ("attack", "gate", "learner", "messages", "to")
"""Options that take further options below them, such as ``--attack.NAME VALUE``."""


class _Parser(argparse.ArgumentParser):
    """Parser that takes no abbreviations, leaves defaults to the function that it calls, and raises `InputError`."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"allow_abbrev": False, "argument_default": argparse.SUPPRESS, **options})

    def error(self, message: str) -> NoReturn:
        way_out = f"`{self.prog} --help` lists them."
        raise InputError(expected=f"options that {self.prog} takes", found=message, way_out=way_out)


def parsed(args: Sequence[str]) -> tuple[Callable[..., int], dict[str, Any]]:
    """Function of the requested command and its arguments.

    Raises:
        InputError: an option or its value is wrong, or an attack does not accept its arguments.
    """
    parser = _Parser(prog="attack.py", description="Attacks on recordings of federated training.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND", title="commands")
    for name, (summary, options) in _COMMANDS.items():
        command = commands.add_parser(name, help=summary, description=summary)
        for option in options:
            command.add_argument(option, *_ALIASES.get(option, ()), **_OPTIONS[option])
        if name == "run" and [*args][:1] == ["run"] and {"-h", "--help"} & {*args}:
            command.formatter_class, command.epilog = argparse.RawDescriptionHelpFormatter, _names_of_attacks()
    given, further = parser.parse_known_args(args)
    arguments = vars(given)
    name = arguments.pop("command")
    below = _options_below(further, name)
    if name == "run":
        _add_config(arguments, below)
    missing = [f"--{option}" for option in _REQUIRED.get(name, ()) if arguments.get(option) is None]
    require(not missing, f"attack.py {name} with {' and '.join(missing)}", "none", f"`attack.py {name} --help`.")
    if name == "run":
        _make_objects(arguments, below)
    elif "set" in arguments:
        arguments["set"] = dict(arguments["set"])
    if below["gate"]:
        arguments["gate"] = [*arguments.get("gate", []), *(f"{key}={limit}" for key, limit in below["gate"].items())]
    arguments |= {f"{option}_arguments": below[option] for option in ("learner", "to") if below[option]}
    function = "list_attacks" if name == "list" else name
    if name not in ("list", "demo"):  # the demo announces itself
        say_what_starts("loading torch and the attacks")
    return getattr(importlib.import_module(f"{__package__}.{function}"), function), arguments


def _names_of_attacks() -> str:
    """The names that ``--attack`` takes, by question."""
    from fedleak.reports.attack_descriptions import described

    names: dict[str, list[str]] = {}
    for one in described():
        names.setdefault(one.family, []).append(one.name)
    width = shutil.get_terminal_size().columns - 2
    wraps: dict[str, Any] = {"initial_indent": "  ", "subsequent_indent": "    ", "break_on_hyphens": False}
    lines = [textwrap.fill(f"{family}/ {', '.join(own)}", width, **wraps) for family, own in names.items()]
    heading = "attacks, by question (name, or question/name where several have it; `attack.py list` describes them):"
    return "\n".join([*textwrap.wrap(heading, width), *lines])


def _options_below(words: Sequence[str], command: str) -> dict[str, dict[str, Any]]:
    """Values of options such as ``--attack.NAME VALUE`` by option, nested by the parts of their names."""
    found: dict[str, dict[str, Any]] = {head: {} for head in _BELOW}
    left = iter(words)
    for word in left:
        option, given, text = word.partition("=")
        head, *path = option.split(".")
        known = _COMMANDS[command][1]
        if head not in known or head.removeprefix("--") not in found or not path:
            near = difflib.get_close_matches(option, known, n=1, cutoff=0.75)
            way_out = f"Did you mean {near[0]}?" if near else f"`attack.py {command} --help` lists them."
            raise InputError(expected=f"options that attack.py {command} takes", found=word, way_out=way_out)
        inner = found[head.removeprefix("--")]
        for part in path[:-1]:
            inner = inner.setdefault(part, {})
        inner[path[-1]] = _value(text if given else next(left, ""))
    return found


def _add_config(arguments: dict[str, Any], below: Mapping[str, dict[str, Any]]) -> None:
    """Adds what only the configuration file of ``run`` sets; ``attack`` there may be a class path with arguments."""
    from fedleak.tables.table_file import check_keys, read_mapping

    if "config" not in arguments:
        return
    path = Path(arguments.pop("config"))
    config = read_mapping(path, "options of attack.py run in YAML, UTF-8")
    names = [option.removeprefix("--") for option in _COMMANDS["run"][1]]
    check_keys(config, [name for name in names if name != "config"], f"options of attack.py run in {path}")
    attack = config.pop("attack", None)
    name, own = (attack.get("class_path"), attack.get("init_args")) if isinstance(attack, Mapping) else (attack, None)
    if arguments.setdefault("attack", name) == name:
        below["attack"].update({**(own or {}), **below["attack"]})
    arguments.update({**config, **arguments})


def _make_objects(arguments: dict[str, Any], below: Mapping[str, Mapping[str, Any]]) -> None:
    """Makes the attack and the selection of messages of ``run``."""
    from fedleak.core.field_types import typed_arguments
    from fedleak.evaluation.message_selection import MessageSelection
    from fedleak.evaluation.registry import make_attack

    arguments["attack"] = make_attack(arguments["attack"], below["attack"])
    messages = {**(arguments.get("messages") or {}), **below["messages"]}
    try:
        arguments["messages"] = MessageSelection(**typed_arguments(MessageSelection, messages))
    except (TypeError, ValueError) as error:
        raise InputError(expected="options of --messages", found=str(error), way_out="Correct --messages.") from None
