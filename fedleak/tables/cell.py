"""Cell of a table: a training, the attacks on its recording, what its numbers depend on, and equivalent commands."""

import dataclasses
import functools
import json
import pydoc
import shlex
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedleak.core.attack import Attack
from fedleak.core.bounded_yaml import load_yaml
from fedleak.core.errors import InputError
from fedleak.core.moved import with_current_paths
from fedleak.core.parameters import argument_names
from fedleak.core.provenance import hashed, outside_sources, source_hash, versions
from fedleak.evaluation.audit_plan import AuditPlan
from fedleak.evaluation.message_selection import MessageSelection
from fedleak.evaluation.registry import find, make_attack
from fedleak.evaluation.steps.step import RecordingStep
from fedleak.recordings.recording import Recording
from fedleak.tables.overrides import Config, option_words, options_of, overridden
from fedleak.tables.parsed_training import Training

Arguments = dict[str, Any]
VICTIMS = "victims"
"""Key among an attack's arguments for the largest number of clients that it attacks."""
QUIET: dict[str, Any] = {
    "trainer.logger": False,
    "trainer.enable_checkpointing": False,
    "trainer.enable_progress_bar": False,
    "trainer.enable_model_summary": False,
    "trainer.limit_val_batches": 0,
    "trainer.num_sanity_val_steps": 0,
}
"""Overrides of every training: a table has its own progress bar, and measures in its `after` steps."""
_ELSEWHERE = {"data": ("root", "num_workers"), "trainer": ("default_root_dir", "devices", "num_nodes", "accelerator")}
"""Arguments that change no number."""


@dataclass(frozen=True)
class Stamp:
    """Hashes of what the numbers of a cell depend on.

    Attributes:
        table: the cell with its attacks, arguments, limits, scale, victims and seed.
        data: fingerprint of the data.
        code: source files, committed or not, with those of classes from outside the project and what they import.
        packages: versions of Python and the packages.
    """

    table: str
    data: str
    code: str
    packages: str

    def changed(self, other: Mapping[str, Any]) -> list[str]:
        """Names of the hashes that differ from another stamp's."""
        return [name for name, value in dataclasses.asdict(self).items() if other.get(name) != value]


@dataclass(frozen=True, kw_only=True)
class Rounds:
    """Rounds of a recording to attack.

    Attributes:
        which: numbers of the rounds, from 0; None for all.
        separate: whether each round has its own rows, with the column ``round``, from 1.
        history: whether attacks get the earlier messages of the same clients.
    """

    which: list[int] | None = None
    separate: bool = False
    history: bool = False


@dataclass(frozen=True, kw_only=True)
class Cell:
    """Cell of a table; it can be sent to another process.

    Attributes:
        table: name of the table.
        labels: labels of the axes, in order.
        setting: setting columns of its results.
        base: file of the configuration that `config` overrides.
        config: configuration of ``fedleak train``.
        attacks: arguments, and `VICTIMS`, by name or class path of the attack.
        messages: options of `MessageSelection`.
        rounds: rounds to attack.
        after: steps, see `fedleak.tables.after`.
        seed: seed of the training and of the attacks' draws.
        victims: largest number of victims for all attacks, None for all.
        out: folder of the table's results.
        progress: whether to show a progress bar.
    """

    table: str
    labels: tuple[str, ...]
    setting: Mapping[str, Any]
    base: Path
    config: Config
    attacks: Mapping[str, Arguments]
    messages: Mapping[str, Any] = field(default_factory=dict)
    rounds: Rounds = Rounds()
    after: list[Any] = field(default_factory=list)
    seed: int = 0
    victims: int | None = None
    out: Path = Path("runs")
    progress: bool = True

    @property
    def key(self) -> str:
        """File name that is unique in the table."""
        words = "-".join(label.replace("/", "_").replace(" ", "_") for label in self.labels)
        key = f"{words or self.table}-seed{self.seed}"
        if self.victims is not None:
            key += f"-victims{self.victims}"
        return key

    @property
    def data(self) -> str:
        """Name of the data set."""
        return str(self.setting["data"])

    @functools.cached_property
    def training(self) -> Config:
        """Configuration that determines the training's numbers, with all defaults."""
        # Parsed once for all seeds, which are put in afterwards.
        plain: Config = json.loads(_plain(json.dumps(self._seedless)))
        for part in ("data", "model"):
            if "seed" in plain[part]["init_args"]:
                plain[part]["init_args"]["seed"] = self.seed
        # Without paths, devices and workers, so that a training elsewhere has the same description.
        for part, names in _ELSEWHERE.items():
            arguments = plain[part].get("init_args", plain[part])
            for name in names:
                arguments.pop(name, None)
        return plain

    @property
    def folder(self) -> Path:
        """Folder of the training, which cells with the same training share."""
        return self.out / "trainings" / hashed(self.training)[:12]

    @property
    def full_config(self) -> Config:
        """Configuration with the folder."""
        return overridden(self.config, {"trainer.default_root_dir": str(self.folder)})

    def check(self) -> None:
        """Checks the configuration, attacks and messages before a training."""
        _ = self.training
        self.make_attacks()
        self.selection()

    def make_attacks(self) -> dict[str, Attack]:
        """Attacks by the table's names."""
        attacks = {}
        for name in self.attacks:
            arguments = _constructor_arguments(self._on_devices(name))
            attacks[name] = make_attack(name, arguments, others=[VICTIMS])
        return attacks

    def _on_devices(self, name: str) -> Arguments:
        """Arguments of an attack; one that trains uses as many devices as the table's training."""
        devices = self.config.get("trainer", {}).get("devices", 1)
        arguments = self.attacks[name]
        if devices in (1, "1", "auto") or "devices" not in argument_names(find(name)):
            return arguments
        count = len(devices) if isinstance(devices, list) else int(devices)
        return {"devices": count, **arguments}

    def selection(self) -> MessageSelection:
        """Messages for attacks on whole recordings."""
        try:
            return MessageSelection(**self.messages)
        except (TypeError, ValueError) as error:
            raise InputError(
                expected="options of `messages`",
                found=str(error),
                way_out="Correct `messages`.",
            ) from None

    def fingerprint(self) -> Mapping[str, str]:
        """Fingerprint of the data, which are read for it."""
        return _fingerprint(json.dumps(self._seedless["data"]), self.base)

    @property
    def _seedless(self) -> Config:
        if not self.seed:
            return self.config
        return overridden(self.config, {"data.seed": 0})

    def identity(self) -> dict[str, Any]:
        """What its numbers depend on, apart from data, code and packages."""
        return {
            "training": self.training,
            "attacks": self.attacks,
            "messages": self.messages,
            "after": self.after,
            "seed": self.seed,
            "setting": self.setting,
            "victims": self.victims,
            "rounds": dataclasses.asdict(self.rounds),
        }

    def stamp(self, fingerprint: Mapping[str, str]) -> Stamp:
        """Hashes of what its numbers depend on, on data with a fingerprint, with code and packages as they are now."""
        identity = self.identity()
        sources = [source_hash(), *outside_sources(_class_modules(identity))]
        return Stamp(
            table=hashed(identity),
            data=hashed(dict(fingerprint)),
            code=hashed(sources),
            packages=hashed(versions()),
        )

    def commands(self) -> Iterator[str]:
        """Commands that produce the same recording and scores."""
        base = with_current_paths(load_yaml(self.base.read_text(encoding="utf-8")))
        options = options_of(self.full_config, base)
        yield " ".join(["fedleak train fit --config", shlex.quote(str(self.base)), *options])
        # Options of all attacks of the cell.
        common = []
        if self.seed:
            common.append(f"--seed {self.seed}")
        if self.rounds.which is not None:
            common.append(f"--rounds {shlex.quote(json.dumps(self.rounds.which))}")
        if self.rounds.history:
            common.append("--history")
        if self.messages:
            common.append(f"--messages {shlex.quote(json.dumps(dict(self.messages)))}")
        recording = shlex.quote(str(self.folder / "deltas"))
        for name in self.attacks:
            arguments = self._on_devices(name)
            words = option_words("--attack", _constructor_arguments(arguments))
            if VICTIMS in arguments:
                words.append(f"--victims {arguments[VICTIMS]}")
            out = shlex.quote(str(self.out / "by-hand" / self.key / name.replace("/", "-")))
            yield " ".join(["fedleak run", recording, "--attack", name, *words, *common, "--out", out])

    @property
    def limits(self) -> dict[str, int]:
        """Largest number of victims by attack, where the table sets one."""
        return {find(name).name: options[VICTIMS] for name, options in self.attacks.items() if VICTIMS in options}

    def plan(self, recording: Recording, steps: Sequence[RecordingStep] = ()) -> AuditPlan:
        """Plan of the audit of the cell's recording by the cell's attacks, with some steps."""
        rounds = self.rounds.which
        if rounds is not None:
            # A recorder that leaves out rounds, or a shorter training, has not all of those that the table names.
            recorded = recording.rounds
            rounds = [number for number in rounds if number in recorded]
        return AuditPlan(
            recording=recording,
            attacks=list(self.make_attacks().values()),
            seed=self.seed,
            setting=self.setting,
            victims=self.victims,
            limits=self.limits,
            rounds=rounds,
            by_round=self.rounds.separate,
            history=self.rounds.history,
            messages=self.selection(),
            slow="all",
            steps=steps,
            describe=False,
            check_learner=False,
            separate=False,
        )


def _constructor_arguments(arguments: Mapping[str, Any]) -> Arguments:
    """Arguments of the attack's constructor."""
    return {name: value for name, value in arguments.items() if name != VICTIMS}


def _class_modules(content: Any) -> Iterator[str]:
    """Modules of all classes that a description names by path; the checks of the table have imported them."""
    if isinstance(content, str):
        # Only of imported packages: a text with a point in it is not imported to see whether it is a path.
        if "." in content and content.partition(".")[0] in sys.modules:
            located = pydoc.locate(content)
            if isinstance(located, type):
                yield located.__module__
    elif isinstance(content, Iterable):
        for element in content:
            yield from _class_modules(element)
        if isinstance(content, Mapping):
            for value in content.values():
                yield from _class_modules(value)


@functools.cache
def _fingerprint(data: str, base: Path) -> Mapping[str, str]:
    """Fingerprint of data with a configuration, in JSON; cached, because reading them takes long."""
    config = with_current_paths(load_yaml(base.read_text(encoding="utf-8")))
    return Training({**config, "data": json.loads(data)}).data().fingerprint


@functools.lru_cache(maxsize=4096)
def _plain(config: str) -> str:
    """Configuration with all defaults; cached, because the seeds of a cell differ in one number only."""
    return json.dumps(Training(json.loads(config)).plain)
