"""Options of ``fedleak audit``: their values, which of them exclude each other, and their help."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedleak.commands.shared import shared_options, value_types
from fedleak.commands.shared.command import Option, Options, flag
from fedleak.core.errors import require
from fedleak.reports.results_folder import folder_above

if TYPE_CHECKING:
    from fedleak.evaluation.gate import About
    from fedleak.recordings.control import Control
    from fedleak.reports.files import Format

_MINUTES = 30.0
"""Time of an audit for which none is set."""


@dataclass(frozen=True)
class AuditOptions(Options):
    """Values of the options of ``fedleak audit``."""

    recording: str
    only: Sequence[str] | None = None
    also: Sequence[str] = ()
    published: bool = False
    slow: bool = False
    victims: int | None = None
    learner: str | None = None
    learner_arguments: Mapping[str, Any] = field(default_factory=dict)
    out: str | None = None
    formats: Sequence["Format"] = ()
    persons: bool = False
    statement: str | None = None
    reference: str | None = None
    wandb: str | None = None
    gate: Sequence[str] = ()
    gate_by_name: Mapping[str, Any] = field(default_factory=dict)
    about: "About" = "clients"
    minutes: float | None = None
    seed: int = 0
    jobs: int | None = None
    what_if: str | None = None
    control: "Control | None" = None
    part: str | None = None
    engine: str = shared_options.DEFAULT_ENGINE
    engine_arguments: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        way_out = "Omit one of them."
        require(
            self.control is None or not self.judges,
            "--control without --gate, --statement and --reference",
            f"--control {self.control}",
            "Omit one of them: a control says nothing about the system.",
        )
        require(self.what_if is None or self.control is None, "--what-if without --control", str(self.what_if), way_out)
        require(
            self.part is None or not (self.judges or self.what_if or self.formats or self.wandb),
            "--part with options of the attacks only",
            "one of the results",
            "A part only computes estimates: give these to the command without --part, after all parts.",
        )
        require(
            self.minutes is None or not (self.what_if or self.part),
            "--minutes without --what-if and --part",
            str(self.minutes),
            way_out,
        )

    @property
    def judges(self) -> bool:
        """Whether the audit ends with a judgement: verdicts, a statement, or what changed."""
        return bool(self.limits) or self.statement is not None or self.reference is not None

    @property
    def limits(self) -> list[str]:
        """Limits of the gate, as ``NAME=LIMIT``."""
        return shared_options.limits_of(self.gate, self.gate_by_name)

    @property
    def time(self) -> float | None:
        """Minutes for the audit; None for no bound."""
        if self.minutes is not None or self.slow or self.what_if or self.part:
            return self.minutes
        return _MINUTES

    @property
    def results(self) -> Path:
        """Folder of the results."""
        if self.out is not None:
            return Path(self.out)
        folder = folder_above(self.recording)
        if self.what_if is not None:
            return folder / "what-if"
        if self.control is not None:
            return folder / f"control-{self.control}"
        return folder


GROUPS: Mapping[str, Sequence[Option]] = {
    shared_options.AUDITED: [
        shared_options.recording_folder(),
        shared_options.ONLY,
        shared_options.ALSO,
        flag(
            "--published",
            "also run published attacks that are nowhere ahead of every other in docs/results; they run in tables"
            " anyway",
        ),
        shared_options.SLOW,
        shared_options.victims("clients to attack, drawn at random", "all"),
        shared_options.LEARNER,
    ],
    shared_options.WRITTEN: [
        shared_options.out("folder of the results", "the folder that holds the recording"),
        shared_options.FORMATS,
        shared_options.PERSONS,
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
        shared_options.wandb("results and figures"),
    ],
    shared_options.LIMITS: [
        shared_options.gate(
            "limit on what an attack infers, or QUESTION/METRIC=LIMIT: the highest mean over victims, e.g. auc=0.6;"
            " for distances and errors the lowest, e.g. l1=0.3. A question is a family of attacks, e.g."
            " record-membership/auc=0.6. beyond-baseline=0.05 limits how much more is inferred than by the best"
            " baseline, change=0.05 than in --reference. Baselines are exempt. Repeatable. The 95% interval"
            " decides: exit status 3 if that of an attack is entirely beyond a limit, 5 if one contains it, hides"
            " exposed clients or has fewer than 5 victims, 4 if no attack measured the metric",
            "none",
        ),
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
            f"{_MINUTES:g}; unbounded with --slow, --part and --what-if",
            parsing={"type": value_types.minutes, "metavar": "N"},
        ),
    ],
    shared_options.ADVANCED: [
        shared_options.SEED,
        shared_options.jobs(
            "attacks, or defences of --what-if, at the same time",
            "1 with all threads; one per core with --part and --what-if; 16 on SLURM",
        ),
        shared_options.ENGINE,
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
        shared_options.part(
            "part I, from 0, of N of the attacks, for several machines that share --out; run the command without it"
            " after all parts to write the report"
        ),
    ],
}
"""Options by the heading of their group."""
