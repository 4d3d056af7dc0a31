"""Options that several commands have; what differs between commands is an argument."""

from collections.abc import Mapping, Sequence
from typing import Any

from fedleak.commands.shared import value_types
from fedleak.commands.shared.command import Option, flag

# Headings of groups of options; advanced ones come last.
AUDITED = "what to audit"
WRITTEN = "what to write"
LIMITS = "limits"
ADVANCED = "advanced"


def recording_folder(help: str = "folder of the recording") -> Option:
    """The recording that a command reads."""
    return Option("recording", help, required=True, parsing={"metavar": "DIR"})


def out(help: str, default: str = "") -> Option:
    """The folder that a command writes to; required without a default."""
    return Option("--out", help, default, required=not default, parsing={"metavar": "DIR"})


def victims(help: str, default: str) -> Option:
    """Number of clients to attack."""
    return Option("--victims", help, default, parsing={"type": value_types.at_least_one("--victims"), "metavar": "N"})


def attack_names(name: str, help: str, default: str) -> Option:
    """Names of attacks, with commas or repeated."""
    parsing = {"action": "extend", "type": value_types.names(name), "metavar": "NAMES"}
    return Option(name, help, default, parsing=parsing)


def jobs(help: str, default: str) -> Option:
    """Number of processes."""
    return Option("--jobs", help, default, parsing={"type": value_types.at_least_one("--jobs"), "metavar": "N"})


def part(help: str) -> Option:
    """The part of the work that this machine does."""
    return Option("--part", help, "all", parsing={"metavar": "I/N"})


def wandb(logged: str) -> Option:
    """Project of Weights & Biases."""
    help = f"Weights & Biases project to log {logged} to; offline unless you have logged in"
    return Option("--wandb", help, "none", parsing={"metavar": "PROJECT"})


def gate(help: str, default: str = "") -> Option:
    """Limits on what attacks infer; required without a default."""
    return Option(
        "--gate",
        help,
        default,
        required=not default,
        further="gate_by_name",
        parsing={"action": "append", "metavar": "METRIC=LIMIT"},
    )


def limits_of(gate: Sequence[str], gate_by_name: Mapping[str, Any]) -> list[str]:
    """Limits as ``NAME=LIMIT``, of ``--gate NAME=LIMIT`` and of ``--gate.NAME LIMIT``."""
    return [*gate, *(f"{name}={limit}" for name, limit in gate_by_name.items())]


DEFAULT_ENGINE = "processes"
ENGINE = Option(
    "--engine",
    "where the work runs: processes of this machine; submitit, for jobs on SLURM, or of this machine with"
    " --engine.cluster local; a backend of joblib such as dask or ray, where it runs already; or a class path. With"
    " --engine.NAME VALUE for its options: of submitit partition, account, minutes, cpus, memory_gb, gpus, retries,"
    " requeues and sbatch.NAME, see docs/reference/clusters.md",
    DEFAULT_ENGINE,
    further="engine_arguments",
    parsing={"metavar": "NAME"},
)
SEED = Option("--seed", "seed of the attacks' draws", "0", parsing={"type": value_types.seed, "metavar": "N"})
ONLY = attack_names(
    "--only",
    "run these attacks alone: names of `fedleak list --all` or class paths such as my_package.MyAttack, with commas",
    "all that fit the recording",
)
ALSO = attack_names("--also", "add these attacks to all that fit, by the same names", "none")
SLOW = flag("--slow", "also run attacks that take minutes, on a few clients of the first round; else a line lists them")
LEARNER = Option(
    "--learner",
    "the learner whose clients attacks simulate: one of the project, e.g. Pretrained, or from outside, e.g."
    " my_package.MyLearner, with --learner.NAME VALUE for its arguments; or the module of the learner that the manifest"
    " names. It is imported, so name only code that you trust",
    "the one in the recording's manifest",
    further="learner_arguments",
    parsing={"metavar": "CLASS"},
)
FORMATS = Option(
    "--format",
    "further files, e.g. svg,pdf,csv,tex: figures into figures/, tables into tables/",
    "none",
    parsing={"action": "extend", "type": value_types.formats, "dest": "formats", "metavar": "NAMES"},
)
PERSONS = flag(
    "--persons",
    "keep the clients' pseudonyms and numbers in the results, and show single clients on the page, which then must not"
    " be passed on; else the page shows numbers over several clients, and in scores.csv each client gets a number that"
    " needs FEDLEAK_KEY or, without it, is new in each call",
)
