"""A paper's table: a grid of overrides of a configuration of ``train.py``, and the attacks on every recording."""

import functools
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from tqdm import tqdm

from attacks.registry import find
from datamodules.base import FederatedDataModule
from evaluation.derived import DERIVED
from experiments.after import after_steps
from experiments.cell import Arguments, Cell, Rounds
from experiments.overrides import Config, argument_names, below, class_named, kind_of, near, overridden
from experiments.table_file import (
    KEYS,
    OF_A_CELL,
    Label,
    check_keys,
    checked,
    filled,
    labels_of,
    listed,
    over,
    read_content,
    read_training,
)
from protocol.errors import InputError
from protocol.metrics import METRICS

Scale = Literal["small", "paper"]


@dataclass(frozen=True)
class Choice:
    """What the command line asks of a table.

    Attributes:
        root: folder of the data sets.
        data: only this data set: a folder's name, or the class path of a data module; None for the table's.
        scale: ``small`` or ``paper``.
        seeds: least number of trainings of each cell, from seed 0 on.
        victims: most victims of a recording, None for all.
        overrides: by dotted key of ``train.py``, in every cell.
        attacks: further attacks, by names or class paths, with their defaults.
        out: folder of the results.
        progress: show a bar in each cell.
    """

    root: str | None = None
    data: str | None = None
    scale: Scale = "small"
    seeds: int = 1
    victims: int | None = None
    overrides: Mapping[str, Any] = field(default_factory=dict)
    attacks: Sequence[str] = ()
    out: Path = Path("runs")
    progress: bool = True


@dataclass(frozen=True)
class Table:
    """A table as its file has it; see docs/tables.md for the keys.

    Attributes:
        name: of the file.
        base: file of the training.
        config: its content.
        content: of the table's file.
    """

    name: str
    base: Path
    config: Config
    content: Mapping[str, Any]

    @property
    def metrics(self) -> list[str]:
        """The metrics that it reports."""
        return list(self.content["metrics"])

    @property
    def jobs(self) -> int | None:
        """Trainings to run at once unless the command line says otherwise; None for one per core."""
        jobs: int | None = self.content.get("jobs")
        return jobs

    def cells(self, choice: Choice) -> list[Cell]:
        """Every cell, each checked: its training is one that ``train.py`` takes, its attacks can be built.

        Raises:
            InputError: a key, a value or a name is wrong, or a data set is of another kind.
        """
        scaled = over(self.content, self.content.get("scales", {}).get(choice.scale) or {})
        parts = [scaled, *(over(scaled, part) for part in scaled.get("also", []))]
        cells = [cell for part in parts for cell in self._cells_of(part, choice)]
        keys = [cell.key for cell in cells]
        for cell in tqdm(cells, desc="check", unit="cell", delay=3, leave=False):
            if keys.count(cell.key) > 1:
                raise InputError(
                    expected="cells that differ in a label", found=f"{cell.key} twice", way_out="Name an axis' labels."
                )
            cell.check()
        self._check_metrics(cells)
        return cells

    def _check_metrics(self, cells: Sequence[Cell]) -> None:
        """Refuses a metric that nothing measures; those of an attack are known once its class is imported."""
        steps = {name for cell in cells for step in after_steps(cell.after) for name in step.metrics}
        for name in self.metrics:
            if name not in {*METRICS, *DERIVED, *steps}:
                raise InputError(
                    expected=f"metrics of {self.name} that an attack, or a step of `after`, measures",
                    found=repr(name),
                    way_out=near(str(name), [*METRICS, *DERIVED, *steps]) or "Fix `metrics`, or add the step.",
                )

    def _cells_of(self, part: Mapping[str, Any], choice: Choice) -> Iterator[Cell]:
        axes = {name: labels_of(values, name) for name, values in part.get("axes", {}).items() if values is not None}
        axes["data"] = self._data(axes.get("data", {self._own_data(): {}}), choice.data)
        common: list[Mapping[str, Any]] = [
            {key: part[key] for key in OF_A_CELL if key in part and key not in ("attacks", "setting")}
        ]
        common.append(checked(part.get("set", {}), "`set`"))
        added: dict[str, Arguments] = {name: {} for name in choice.attacks}
        for labels in itertools.product(*axes.values()):
            setting = dict(zip(axes, labels, strict=True))
            chosen = [axes[name][label] for name, label in setting.items()]
            if not all(_is_there(one.get("where", {}), setting) for one in chosen):
                continue
            overrides = [*common, *(filled(one, setting[name]) for name, one in zip(axes, chosen, strict=True))]
            training = [{k: v for k, v in one.items() if k not in OF_A_CELL} for one in overrides]
            columns = setting | {k: v for k, v in part.get("setting", {}).items() if k not in setting}
            cell = self._cell(columns, overrides, part.get("attacks", {}), added, choice)
            cell = replace(cell, labels=tuple(str(label) for label in labels))
            for seed in range(max(choice.seeds, part.get("seeds", 1))):
                yield replace(
                    cell, seed=seed, config=self._training([*training, choice.overrides], overrides, seed, choice)
                )

    def _cell(
        self,
        setting: Mapping[str, Any],
        overrides: Sequence[Mapping[str, Any]],
        attacks: Mapping[str, Any],
        added: Mapping[str, Any],
        choice: Choice,
    ) -> Cell:
        own = list(overrides)
        columns = {**setting, **_merged(own, "setting")}
        return Cell(
            table=self.name,
            labels=(),
            setting=columns,
            base=self.base,
            config={},
            attacks={**_attacks(attacks, own), **added},
            messages=_merged(own, "messages"),
            rounds=_made(Rounds, _merged(own, "rounds"), "rounds"),
            after=[step for one in own for step in one.get("after", [])],
            seed=0,
            victims=choice.victims,
            out=choice.out,
            progress=choice.progress,
        )

    def _training(
        self,
        training: Sequence[Mapping[str, Any]],
        overrides: Sequence[Mapping[str, Any]],
        seed: int,
        choice: Choice,
    ) -> Config:
        config = functools.reduce(overridden, training, self.config)
        kind = class_named(config["data"]["class_path"], FederatedDataModule)
        common = {"data.seed": seed, **({"data.root": choice.root} if choice.root is not None else {})}
        takes = set(argument_names(kind))
        config = overridden(config, {key: value for key, value in common.items() if key.split(".")[1] in takes})
        return _recorded(config, _merged(overrides, "record"))

    def _data(self, own: Mapping[Label, Mapping[str, Any]], asked: str | None) -> dict[Label, Mapping[str, Any]]:
        """The data sets to run by name, each with the overrides that choose it."""
        wanted: Sequence[Label] = list(own) if asked is None else [asked]
        return {name: {**self._choose_data(str(name)), **own.get(name, {})} for name in wanted}

    def _own_data(self) -> str:
        """Name of the data set that the training's own configuration chooses."""
        kind = class_named(self.config["data"]["class_path"], FederatedDataModule)
        given = self.config["data"].get("init_args", {})
        chosen = (f for f in kind.folders if kind.folder_arguments(f).items() <= given.items())
        return next(chosen, next(iter(kind.folders), kind.__name__))

    def _choose_data(self, name: str) -> dict[str, Any]:
        base = class_named(self.config["data"]["class_path"], FederatedDataModule)
        kinds = {folder: kind for kind in below(FederatedDataModule) for folder in vars(kind).get("folders", ())}
        wanted = kind_of(base)
        if name == base.__name__ and not base.folders:
            return {}
        kind = class_named(name, FederatedDataModule) if "." in name else kinds.get(name)
        if kind is None or not issubclass(kind, wanted):
            fitting = [folder for folder, one in kinds.items() if issubclass(one, wanted)]
            raise InputError(
                expected=f"a data set for {self.name} ({', '.join(fitting)}), or the path of a subclass of"
                f" {wanted.__name__}",
                found=repr(name),
                way_out=near(name, fitting) or "Choose one of these.",
            )
        path = name if "." in name else kind.__name__
        chosen = kind.folder_arguments(name) if name in kind.folders else {}
        return {"data": {"class_path": path, "init_args": chosen}}


def read_table(path: Path) -> Table:
    """Reads a table.

    Raises:
        InputError: it is missing, no YAML, or has a key or a value that there is none of.
    """
    content = read_content(path)
    for key in ("train", "metrics"):
        if key not in content:
            raise InputError(expected=f"{key} in {path}", found="none", way_out="docs/tables.md lists the keys.")
    scales = content.get("scales", {})
    check_keys(scales, ("small", "paper"), f"scales in {path}")
    for part in (*scales.values(), *content.get("also", [])):
        check_keys(part or {}, KEYS, f"keys of a part of {path}")
    base = Path(content["train"])
    return Table(path.stem, _near(base), read_training(base), content)


def _near(path: Path) -> Path:
    """A path from the working directory, where that is above it."""
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path


def _is_there(where: Mapping[str, Any], setting: Mapping[str, Label]) -> bool:
    """Whether a label that is confined to some labels of other axes exists in a cell."""
    check_keys(where, list(setting), "axes in `where`")
    return all(setting[axis] in listed(labels) for axis, labels in where.items())


def _merged(overrides: Sequence[Mapping[str, Any]], key: str) -> dict[str, Any]:
    return {name: value for one in overrides for name, value in one.get(key, {}).items()}


def _attacks(table: Mapping[str, Any], overrides: Sequence[Mapping[str, Any]]) -> dict[str, Arguments]:
    """The attacks of a cell with their arguments: a list of names leaves out the others, a mapping changes some."""
    chosen = {name: dict(arguments or {}) for name, arguments in table.items()}
    for name in chosen:
        find(name)
    for one in overrides:
        given = one.get("attacks")
        for name in given or ():
            check_keys([name], list(table), "attacks of the table")
        if isinstance(given, Mapping):
            chosen = {name: {**own, **given.get(name, {})} for name, own in chosen.items()}
        elif given is not None:
            chosen = {name: own for name, own in chosen.items() if name in given}
    common = _merged(overrides, "arguments")
    return {name: {**_taken(name, common), **own} for name, own in chosen.items()}


def _taken(name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    takes = set(argument_names(find(name))) if arguments else set()
    return {argument: value for argument, value in arguments.items() if argument in takes}


def _recorded(config: Config, record: Mapping[str, Any]) -> Config:
    """With the table's own recorder in place of the configuration's."""
    callbacks = [
        one
        for one in config.get("trainer", {}).get("callbacks", [])
        if str(one["class_path"] if isinstance(one, Mapping) else one).rpartition(".")[2]
        not in ("DeltaRecorder", "RoundProgress")
    ]
    recorder = {"class_path": "DeltaRecorder", "init_args": dict(record)}
    return overridden(config, {"trainer.callbacks": [recorder, *callbacks]})


def _made(kind: Any, options: Mapping[str, Any], key: str) -> Any:
    check_keys(options, list(kind.__dataclass_fields__), f"options of `{key}`")
    return kind(**options)
