"""What each command of ``fedleak`` takes: its options in groups, with what they do in that command."""

from collections.abc import Mapping

from fedleak.commands import option
from fedleak.commands.option import Command, Option, flag

AUDITED, WRITTEN, LIMITS, ADVANCED = "what to audit", "what to write", "limits", "advanced"
"""Headings of the groups."""


def _recording(help: str = "folder of the recording") -> Option:
    return Option("recording", help, required=True, parsing={"metavar": "DIR"})


def _out(help: str, default: str) -> Option:
    return Option("--out", help, default, required=not default, parsing={"metavar": "DIR"})


def _victims(help: str, default: str) -> Option:
    return Option("--victims", help, default, parsing={"type": option.at_least_one("--victims"), "metavar": "N"})


def _names(name: str, help: str, default: str) -> Option:
    return Option(name, help, default, parsing={"action": "extend", "type": option.names(name), "metavar": "NAMES"})


def _jobs(help: str, default: str) -> Option:
    return Option("--jobs", help, default, parsing={"type": option.at_least_one("--jobs"), "metavar": "N"})


def _wandb(help: str) -> Option:
    said = f"{help}; offline unless you have logged in"
    return Option("--wandb", said, "none", parsing={"metavar": "PROJECT"})


_SEED = Option("--seed", "seed of the attacks' draws", "0", parsing={"type": option.seed, "metavar": "N"})
_ONLY = _names(
    "--only",
    "run these attacks alone: names of `fedleak list --all` or class paths such as my_package.MyAttack, with commas",
    "all that fit the recording",
)
_ALSO = _names("--also", "add these attacks to all that fit, by the same names", "none")
_SLOW = flag(
    "--slow", "also run attacks that take minutes, on a few clients of the first round; else a line lists them"
)
_LEARNER = Option(
    "--learner",
    "the learner whose clients attacks simulate: one of the project, e.g. Pretrained, or from outside, e.g."
    " my_package.MyLearner, with --learner.NAME VALUE for its arguments; or the module of the learner that the manifest"
    " names. It is imported, so name only code that you trust",
    "the one in the recording's manifest",
    further=True,
    parsing={"metavar": "CLASS"},
)
_FORMAT = Option(
    "--format",
    "further files, e.g. svg,pdf,csv,tex: figures into figures/, tables into tables/",
    "none",
    parsing={"action": "extend", "type": option.formats, "metavar": "NAMES"},
)
_PERSONS = flag(
    "--persons",
    "keep the clients' pseudonyms and numbers in the results, and show single clients on the page, which then must not"
    " be passed on; else the page shows numbers over several clients, and in scores.csv each client gets a number that"
    " needs FEDLEAK_KEY or, without it, is new in each call",
)
_GATE = Option(
    "--gate",
    "limit on what an attack infers, or QUESTION/METRIC=LIMIT: the highest mean over victims, e.g. auc=0.6; for"
    " distances and errors the lowest, e.g. l1=0.3. A question is a family of attacks, e.g. record-membership/auc=0.6."
    " beyond-baseline=0.05 limits how much more is inferred than by the best baseline, change=0.05 than in --reference."
    " Baselines are exempt. Repeatable. The 95% interval decides: exit status 3 if that of an attack is entirely beyond"
    " a limit, 5 if one contains it, hides exposed clients or has fewer than 5 victims, 4 if no attack measured the"
    " metric",
    "none",
    further=True,
    parsing={"action": "append", "metavar": "METRIC=LIMIT"},
)
_RESULTS = _out("folder of the results", "the folder that holds the recording")

_DEMO = Command(
    "trains on handwritten digits and generated clicks, attacks the recordings, writes one report",
    {WRITTEN: [_out("folder of the recordings and of the report", "runs/demo")]},
    function="demo",
    description="It needs no download and takes about a minute.",
    loads="",  # it announces itself
)
_AUDIT = Command(
    "runs all attacks for which a recording has the data, and says what they infer",
    {
        AUDITED: [_recording(), _ONLY, _ALSO, _SLOW, _victims("clients to attack, drawn at random", "all"), _LEARNER],
        WRITTEN: [
            _RESULTS,
            _FORMAT,
            _PERSONS,
            Option(
                "--statement",
                "what the controller declares: a changed copy of docs/audit/system-example.yaml; writes statement.html"
                " and statement.json. Its limits are limits of the gate",
                "none",
                parsing={"metavar": "FILE"},
            ),
            Option(
                "--reference",
                "folder of an earlier run: the report starts with what changed since then, on the same clients if"
                " FEDLEAK_KEY was the same",
                "none",
                parsing={"metavar": "RUN"},
            ),
            _wandb("Weights & Biases project to log results and figures to"),
        ],
        LIMITS: [
            _GATE,
            Option(
                "--about",
                "whom limits are about: clients like the recorded ones (an inference), or the clients of this recording"
                ", for a federation whose clients are all recorded (a fact, if all are attacked)",
                "clients",
                parsing={"choices": ("clients", "recording")},
            ),
            Option(
                "--minutes",
                "time for the audit: attacks that do not fit in are left out, named with the time that they need",
                "30; unbounded with --slow, --part and --what-if",
                parsing={"type": option.minutes, "metavar": "N"},
            ),
        ],
        ADVANCED: [
            _SEED,
            _jobs(
                "processes, each with one thread, for the attacks or the defences of --what-if",
                "1 with all threads; one per core with --part and --what-if",
            ),
            Option(
                "--what-if",
                "defences in YAML, see docs/audit/what-if.md: what attacks would find if clients had used each of them,"
                " and how much of the round's mean update it leaves",
                "none",
                parsing={"metavar": "FILE"},
            ),
            Option(
                "--control",
                "give attacks the update of another client, or noise, in the place of each update: every attack has to"
                " fall to chance, and bits to 0; or priors that say nothing, which must not make an attack worse."
                " Results go to a folder of their own",
                "none",
                parsing={"choices": ("others", "noise", "priors")},
            ),
            Option(
                "--part",
                "part I, from 0, of N of the attacks, for several machines that share --out; run the command without it"
                " after all parts to write the report",
                "all",
                parsing={"metavar": "I/N"},
            ),
        ],
    },
    function="audit",
    description="It describes the updates in any case.",
)
_RUN = Command(
    "runs one attack on a recording, with hyper-parameters of your own",
    {
        AUDITED: [
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
                further=True,
                parsing={"metavar": "NAME"},
            ),
            _victims("clients to attack, drawn at random", "all"),
            Option(
                "--rounds",
                "numbers of the rounds to attack, from 0, as 0,1",
                "all",
                parsing={"type": option.rounds, "metavar": "NUMBERS"},
            ),
            _LEARNER,
        ],
        WRITTEN: [_out("folder of the results", "run-NAME next to the recording"), _FORMAT, _PERSONS],
        ADVANCED: [
            _SEED,
            Option("--config", "values of these options, in YAML", "none", parsing={"metavar": "FILE"}),
            flag("--history", "also give the attack the server's views of the same clients in earlier rounds"),
            Option(
                "--messages",
                "messages for attacks on all messages together, as JSON or --messages.NAME VALUE",
                "all",
                further=True,
                parsing={"type": option.value, "metavar": "JSON"},
            ),
        ],
    },
    function="run",
)
_WATCH = Command(
    "audits the rounds of a recording while they are written, and writes a verdict that the server reads",
    {
        AUDITED: [
            _recording("folder of the recording, which need not exist yet"),
            _ONLY,
            _ALSO,
            _SLOW,
            _victims("clients of each round to attack, drawn at random", "all"),
            _LEARNER,
        ],
        WRITTEN: [
            _out("folder of the verdict and of the scores", "watch next to the recording"),
            Option(
                "--logger",
                "loggers of Lightning for the numbers of each round: csv, tensorboard, wandb or mlflow",
                "none",
                parsing={"action": "extend", "type": option.loggers, "metavar": "NAMES"},
            ),
        ],
        LIMITS: [
            Option(
                "--gate",
                "limit on what an attack infers, METRIC=LIMIT or QUESTION/METRIC=LIMIT, as for `fedleak audit`, with"
                " intervals that hold over all looks together. Repeatable",
                required=True,
                further=True,
                parsing={"action": "append", "metavar": "METRIC=LIMIT"},
            ),
            Option(
                "--every",
                "number of new rounds after which they are audited",
                "1",
                parsing={"type": option.at_least_one("--every"), "metavar": "N"},
            ),
            Option(
                "--until",
                "number of the last round to wait for",
                "the watch ends when the recording is closed",
                parsing={"type": option.from_zero, "metavar": "ROUND"},
            ),
        ],
        ADVANCED: [
            _SEED,
            Option(
                "--expected-rounds",
                "rounds of the training, for the time left and for narrow intervals; another number is no error",
                "100",
                parsing={"type": option.at_least_one("--expected-rounds"), "metavar": "N"},
            ),
        ],
    },
    function="watch",
)
_REPORT = Command(
    "joins the results of several runs into one page",
    {
        "what to join": [
            Option(
                "directories",
                "folders of runs; the first is the reference of what changed",
                required=True,
                parsing={"metavar": "RUN", "nargs": "+"},
            )
        ],
        WRITTEN: [_out("folder of the page", "runs/report"), _FORMAT, _PERSONS],
    },
    function="report",
)
_EXPORT = Command(
    "writes the results of a run in a format of others, or sends them to a service",
    {
        "what to export": [
            Option("directory", "folder of a run", required=True, parsing={"metavar": "RUN"}),
            Option(
                "--to",
                "an exporter by its name, e.g. sarif or bundle, see docs/audit/evidence.md, or by a class path such as"
                " my_package.MyExporter; its options are --to.NAME VALUE",
                required=True,
                further=True,
                parsing={"metavar": "NAME"},
            ),
        ]
    },
    function="export",
)
_VERIFY = Command(
    "checks hashes, structure and signature of an evidence bundle",
    {
        "what to check": [
            Option("bundle", "archive that export --to bundle wrote", required=True, parsing={"metavar": "BUNDLE"}),
            Option(
                "--allowed-signers",
                "who may sign, in the format of ssh-keygen: the bundle must be signed by one of them",
                "a signature is not asked for",
                parsing={"metavar": "FILE"},
            ),
        ]
    },
    function="verify",
    description="The exit status is 0, or 3 if the bundle is not as it was written.",
)
_LIST = Command(
    "prints the questions that attacks answer, or the attacks",
    {
        "what to print": [
            flag("--all", "every attack: exact or statistical, its threat model, its paper, its cost and its needs"),
            Option(
                "--question",
                "every attack of one question, or of those with this word in their names",
                "a line for each question",
                parsing={"metavar": "NAME"},
            ),
            Option(
                "--fits",
                "the attacks that this recording has the data for, and the reasons for which the others do not fit",
                "none",
                parsing={"metavar": "DIR"},
            ),
        ],
        ADVANCED: [_LEARNER],
    },
    function="list_attacks",
    loads="",  # without --fits, it is read from a file
)
_PUBLISH = Command(
    "copies a recording to pass it on, without ground truth, records of clients and paths",
    {
        "what to copy": [
            _recording("folder of the recording, which is not changed"),
            _out("folder of the copy, new or empty", ""),
        ]
    },
    function="publish",
    description="It prints what was left out and what the copy still allows.",
)
_CONVERT = Command(
    "converts .npz or .safetensors files of another system to a recording",
    {
        "what to convert": [
            Option(
                "source",
                "YAML or JSON file that describes the files, see docs/reference/recording-format.md; of the folder of a"
                " recording it makes the copy that `fedleak publish` makes",
                required=True,
                parsing={"metavar": "MANIFEST"},
            ),
            _out("folder of the recording, new or empty", ""),
        ]
    },
    function="convert",
)
_REPRODUCE = Command(
    "computes a paper's table: trainings, attacks, and the papers' numbers next to ours",
    {
        "what to compute": [
            Option(
                "config",
                "a table: its file, or its name in configs/paper, e.g. raifle_table5",
                required=True,
                parsing={"metavar": "TABLE"},
            ),
            Option(
                "--data.root",
                "folder of the data sets",
                "that of the table",
                aliases=("--root",),
                parsing={"dest": "root", "metavar": "DIR"},
            ),
            Option(
                "--data",
                "use only this data set: a folder's name, or the class path of a data module of the same kind",
                "those of the table",
                parsing={"metavar": "NAME"},
            ),
            Option(
                "--scale",
                "paper for all clients of every data set",
                "small",
                parsing={"choices": ("small", "paper")},
            ),
            _names("--also", "add these attacks to those of the table: names or class paths, with commas", "none"),
            _victims("clients to attack in each cell, drawn at random", "those of the table"),
        ],
        WRITTEN: [
            _out("folder of trainings, cells and results", "runs/TABLE"),
            _FORMAT,
            _PERSONS,
            _wandb("Weights & Biases project to log table and figures to"),
        ],
        LIMITS: [
            Option(
                "--seeds",
                "smallest number of trainings of each cell, from seed 0 on",
                "1",
                parsing={"type": option.at_least_one("--seeds"), "metavar": "N"},
            ),
            _jobs("processes, each with one thread, for the trainings", "one per core, but for large trainings"),
        ],
        ADVANCED: [
            flag("--dry-run", "print the commands of each cell without running them"),
            Option(
                "--set",
                "any key of a training in every cell, e.g. model.local.epochs=5. Repeatable",
                "none",
                parsing={"action": "append", "type": option.override, "metavar": "KEY=VALUE"},
            ),
            Option(
                "--part",
                "every N-th training, from the I-th on, from 0, for several machines that share --out; run the command"
                " without it after all parts to write the report",
                "all",
                parsing={"metavar": "I/N"},
            ),
        ],
    },
    function="reproduce",
    description="Finished trainings and cells are cached, so an interrupted run goes on where it stopped.",
)

COMMANDS: Mapping[str, Command] = {
    "demo": _DEMO,
    "audit": _AUDIT,
    "report": _REPORT,
    "list": _LIST,
    "convert": _CONVERT,
    "publish": _PUBLISH,
    "run": _RUN,
    "watch": _WATCH,
    "export": _EXPORT,
    "verify": _VERIFY,
    "reproduce": _REPRODUCE,
}
"""Commands that `fedleak.commands.parser` parses."""
PASSED_ON = {
    "train": "trains a model on federated clients, and records what the server sees: fedleak train fit --help",
    "guard": "the guard of a site that sends, if it is installed: fedleak guard --help",
}
"""Commands with a parser of their own."""
HEADINGS = {
    "start here": ("demo", "audit", "report", "list"),
    "recordings": ("train", "convert", "publish"),
    "audits": ("run", "watch"),
    "results": ("export", "verify"),
    "papers": ("reproduce",),
    "sites": ("guard",),
}
"""Order of the commands in ``fedleak --help``."""
