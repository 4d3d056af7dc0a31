"""One cell of a table: which training, which attacks on its recording, and the commands that do the same by hand."""

import dataclasses
import functools
import hashlib
import json
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from attacks.base import Attack
from attacks.registry import built, find
from evaluation.message_selection import MessageSelection
from experiments.after import after_steps
from experiments.overrides import Config, argument_names, option_words, options_of, overridden
from experiments.parsed_training import Training
from protocol.errors import InputError

Arguments = dict[str, Any]
_READ: dict[str, dict[str, str]] = {}
"""Fingerprints of data that this process has read, by what chooses them."""
VICTIMS = "victims"
"""The key among an attack's arguments that is no argument: how many clients of a recording it attacks at most."""
QUIET: dict[str, Any] = {
    "trainer.logger": False,
    "trainer.enable_checkpointing": False,
    "trainer.enable_progress_bar": False,
    "trainer.enable_model_summary": False,
    "trainer.limit_val_batches": 0,
    "trainer.num_sanity_val_steps": 0,
}
"""A table has a bar of its own, and measures where its `after` says so."""
_ELSEWHERE = {"data": ("root", "num_workers"), "trainer": ("default_root_dir", "devices", "num_nodes", "accelerator")}
"""What changes no number: the data's fingerprint stands for where they lie."""


@dataclass(frozen=True, kw_only=True)
class Rounds:
    """Which rounds of a recording are attacked.

    Attributes:
        which: numbers from 0; None for all.
        separate: each in a row of its own, with the column ``round``, from 1.
        history: with what the server saw of the same clients before.
    """

    which: list[int] | None = None
    separate: bool = False
    history: bool = False


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A cell, which may be run in another process.

    Attributes:
        table: name of its table.
        labels: of the axes, in order.
        setting: columns of its results.
        base: file of the training that `config` changes.
        config: of ``train.py``.
        attacks: by name or class path, their arguments, and `VICTIMS`.
        messages: options of `MessageSelection`.
        rounds: which are attacked.
        after: steps, see `experiments.after`.
        seed: of the training and of the attacks' draws.
        victims: most victims of the recording for all attacks, None for all.
        out: folder of the table's results.
        progress: show a bar while attacks run.
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
        """A file name that no other cell of the table has."""
        words = "-".join(label.replace("/", "_").replace(" ", "_") for label in self.labels)
        return f"{words or self.table}-seed{self.seed}" + ("" if self.victims is None else f"-victims{self.victims}")

    @property
    def data(self) -> str:
        """Name of the data set."""
        return str(self.setting["data"])

    @functools.cached_property
    def training(self) -> Config:
        """What decides the training's numbers, with every default."""
        seedless = overridden(self.config, {"data.seed": 0}) if self.seed else self.config
        plain: Config = json.loads(_plain(json.dumps(seedless)))
        for part in ("data", "model"):
            if "seed" in plain[part]["init_args"]:
                plain[part]["init_args"]["seed"] = self.seed
        for part, names in _ELSEWHERE.items():
            own = plain[part].get("init_args", plain[part])
            for name in names:
                own.pop(name, None)
        return plain

    @property
    def folder(self) -> Path:
        """Of the training; cells with the same training share it."""
        return self.out / "trainings" / _hash(self.training)[:12]

    @property
    def full_config(self) -> Config:
        """The configuration with the folder."""
        return overridden(self.config, {"trainer.default_root_dir": str(self.folder)})

    def check(self) -> None:
        """Refuses what can be known to be wrong before a training.

        Raises:
            InputError: see there.
        """
        _ = self.training
        self.make_attacks()
        after_steps(self.after)
        self.selection()

    def make_attacks(self) -> dict[str, Attack]:
        """The attacks, by the table's names.

        Raises:
            InputError: an argument is unknown or impossible.
        """
        return {name: built(name, _own(self._on_devices(name)), others=[VICTIMS]) for name in self.attacks}

    def _on_devices(self, name: str) -> Arguments:
        """The arguments of an attack; one that trains runs on as many devices as the table's training."""
        devices = self.config.get("trainer", {}).get("devices", 1)
        given = self.attacks[name]
        if devices in (1, "1", "auto") or "devices" not in argument_names(find(name)):
            return given
        return {"devices": len(devices) if isinstance(devices, list) else int(devices), **given}

    def selection(self) -> MessageSelection:
        """Which messages attacks on whole recordings get."""
        try:
            return MessageSelection(**self.messages)
        except TypeError as error:
            raise InputError(expected="options of `messages`", found=str(error), way_out="Fix `messages`.") from None

    def fingerprint(self) -> dict[str, str]:
        """Of the data, which are read for it."""
        read = overridden(self.config, {"data.seed": 0}) if self.seed else self.config
        key = json.dumps(read["data"])
        if key not in _READ:
            _READ[key] = dict(Training(read).data().fingerprint)
        return _READ[key]

    def identity(self) -> dict[str, Any]:
        """All that its numbers depend on but data, code and packages."""
        chosen = {"attacks": self.attacks, "messages": self.messages, "after": self.after, "seed": self.seed}
        setting = {"setting": self.setting, "victims": self.victims, "rounds": dataclasses.asdict(self.rounds)}
        return {"training": self.training, **chosen, **setting}

    def commands(self) -> Iterator[str]:
        """What makes the same recording and the same scores by hand."""
        base = yaml.safe_load(self.base.read_text(encoding="utf-8"))
        options = options_of(self.full_config, base)
        yield " ".join(["python train.py fit --config", shlex.quote(str(self.base)), *options])
        more = [f"--seed {self.seed}"] if self.seed else []
        if self.rounds.which is not None:
            more.append(f"--rounds {shlex.quote(json.dumps(self.rounds.which))}")
        more += ["--history true"] if self.rounds.history else []
        more += [f"--messages {shlex.quote(json.dumps(dict(self.messages)))}"] if self.messages else []
        for name in self.attacks:
            arguments = self._on_devices(name)
            words = option_words("--attack", _own(arguments))
            victims = [f"--victims {arguments[VICTIMS]}"] if VICTIMS in arguments else []
            out = ["--out", shlex.quote(str(self.out / "by-hand" / self.key / name.replace("/", "-")))]
            deltas = ["--deltas", shlex.quote(str(self.folder / "deltas"))]
            yield " ".join(["python attack.py run --attack", name, *words, *deltas, *victims, *more, *out])

    def limits(self) -> dict[str, int]:
        """By attack, the most clients of the recording that it attacks."""
        return {find(name).name: own[VICTIMS] for name, own in self.attacks.items() if VICTIMS in own}


def _own(arguments: Mapping[str, Any]) -> Arguments:
    """Those of the attack's constructor."""
    return {name: value for name, value in arguments.items() if name != VICTIMS}


@functools.lru_cache(maxsize=4096)
def _plain(config: str) -> str:
    """With every default; parsing takes some time, and the seeds of a cell differ in one number."""
    return json.dumps(Training(json.loads(config)).plain)


def _hash(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
