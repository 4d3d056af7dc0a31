"""Table of a paper: a grid of overrides of a ``fedleak train`` configuration, and the attacks on every recording."""

import functools
import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from tqdm import tqdm

from fedleak.core.class_paths import find_in_current_folder
from fedleak.core.errors import InputError, require
from fedleak.core.metric_table import METRICS, metric_names
from fedleak.core.parameters import argument_names
from fedleak.evaluation.derived import DERIVED
from fedleak.evaluation.registry import find
from fedleak.tables.after import after_steps
from fedleak.tables.cell import Arguments, Cell, Rounds
from fedleak.tables.overrides import Config, below, class_named, kind_of, overridden
from fedleak.tables.table_file import (
    OF_A_CELL,
    Label,
    check_keys,
    check_part,
    checked,
    filled,
    labels_of,
    listed,
    over,
    read_content,
    read_training,
)
from fedleak.training.data import FederatedDataModule
from fedleak_recorder.nearest import did_you_mean

Scale = Literal["small", "paper"]


@dataclass(frozen=True)
class Choice:
    """Options of the command line for a table.

    Attributes:
        root: folder of the data sets.
        data: folder's name or class path of the only data set to run; None for those of the table.
        scale: ``small`` or ``paper``.
        seeds: smallest number of trainings per cell, from seed 0 on.
        victims: largest number of victims per recording, None for all.
        overrides: overrides by dotted key of ``fedleak train``, in every cell.
        attacks: additional attacks with default arguments, by name or class path.
        out: folder of the results.
        progress: whether to show a progress bar per cell.
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
    """Content of a table's file; see docs/reference/tables.md for the keys.

    Attributes:
        name: name of the file.
        base: file of the training's configuration.
        config: content of `base`.
        content: content of the table's file.
    """

    name: str
    base: Path
    config: Config
    content: Mapping[str, Any]

    @property
    def file(self) -> str:
        """Name of the file, for messages."""
        return f"{self.name}.yaml"

    @property
    def metrics(self) -> list[str]:
        """Metrics to report."""
        return list(self.content["metrics"])

    @property
    def jobs(self) -> int | None:
        """Default number of concurrent trainings; None for one per core."""
        jobs: int | None = self.content.get("jobs")
        return jobs

    def cells(self, choice: Choice) -> list[Cell]:
        """All cells, with their training's configuration and their attacks checked.

        Raises:
            InputError: a key, a value or a name is wrong, or a data set is of another kind.
        """
        try:
            return self._cells(choice)
        except (TypeError, AttributeError, KeyError, IndexError, ValueError) as error:
            expected = f"values of the forms in docs/reference/tables.md in the table {self.name}"
            found = f"{type(error).__name__}: {' '.join(str(error).split())[:100]}"
            raise InputError(expected=expected, found=found, way_out="Correct the table.") from error

    def _cells(self, choice: Choice) -> list[Cell]:
        scaled = over(self.content, self.content.get("scales", {}).get(choice.scale) or {})
        parts = [scaled, *(over(scaled, part) for part in scaled.get("also", []))]
        cells = [cell for part in parts for cell in self._cells_of(part, choice)]
        keys = Counter(cell.key for cell in cells)
        for cell in tqdm([cell for cell in cells if cell.seed == 0], desc="check", unit="cell", delay=3, leave=False):
            way_out = "Give the labels of an axis different names."
            require(keys[cell.key] == 1, "cells with different labels", f"{cell.key} twice", way_out)
            try:
                cell.check()
            except InputError as error:
                labels = ", ".join(f"{axis} {label}" for axis, label in cell.setting.items())
                expected = f"{error.expected} (in the cell with {labels} of {self.file})"
                raise InputError(expected=expected, found=error.found, way_out=error.way_out) from error
        self._check_metrics(cells)
        return cells

    def _check_metrics(self, cells: Sequence[Cell]) -> None:
        """Checks that an attack or step measures each metric; importing an attack's class registers its metrics."""
        steps = {name for cell in cells for step in after_steps(cell.after) for name in metric_names(step.metrics)}
        known = {*METRICS, *DERIVED, *steps}
        expected = f"metrics of {self.name} that an attack or a step of `after` measures"
        for name in self.metrics:
            way_out = did_you_mean(str(name), known, "Correct `metrics`, or add the step.")
            require(name in known, expected, repr(name), way_out)

    def _cells_of(self, part: Mapping[str, Any], choice: Choice) -> Iterator[Cell]:
        given = {name: values for name, values in part.get("axes", {}).items() if values is not None}
        axes = {name: labels_of(values, name, self.file) for name, values in given.items()}
        axes["data"] = self._data(axes.get("data", {self._own_data(): {}}), choice.data)
        of_cells = {key: part[key] for key in OF_A_CELL if key in part and key not in ("attacks", "setting")}
        of_all = checked(part.get("set", {}), f"`set` of {self.file}")
        common: list[Mapping[str, Any]] = [of_cells, of_all]
        for labels in itertools.product(*axes.values()):
            setting = dict(zip(axes, labels, strict=True))
            chosen = [axes[name][label] for name, label in setting.items()]
            if not all(_is_there(one.get("where", {}), setting) for one in chosen):
                continue
            self._check_data_class(
                axes["data"][setting["data"]],
                {
                    # A data set of the command line replaces that of the whole table.
                    "`set`": of_all if choice.data is None else {},
                    "--set": choice.overrides,
                    **{
                        f"axis {name}, label {label}": axes[name][label]
                        for name, label in setting.items()
                        if name != "data"
                    },
                },
            )
            overrides = [*common, *(filled(one, label) for one, label in zip(chosen, labels, strict=True))]
            training = [_training(override) for override in overrides]
            config = functools.reduce(overridden, [*training, choice.overrides], self.config)
            rounds = _merged(overrides, "rounds")
            check_keys(rounds, list(Rounds.__dataclass_fields__), "options of `rounds`")
            for seed in range(max(choice.seeds, part.get("seeds", 1))):
                yield Cell(
                    table=self.name,
                    labels=tuple(str(label) for label in labels),
                    setting={**part.get("setting", {}), **setting, **_merged(overrides, "setting")},
                    base=self.base,
                    config=_recorded(_on_data(config, seed, choice.root), _merged(overrides, "record")),
                    attacks={**_attacks(part.get("attacks", {}), overrides), **{name: {} for name in choice.attacks}},
                    messages=_merged(overrides, "messages"),
                    rounds=Rounds(**rounds),
                    after=[step for one in overrides for step in one.get("after", [])],
                    seed=seed,
                    victims=choice.victims,
                    out=choice.out,
                    progress=choice.progress,
                )

    def _data(self, own: Mapping[Label, Mapping[str, Any]], asked: str | None) -> dict[Label, Mapping[str, Any]]:
        """Overrides by name of the data sets to run."""
        wanted: Sequence[Label] = list(own) if asked is None else [asked]
        return {name: {**self._choose_data(str(name)), **own.get(name, {})} for name in wanted}

    def _check_data_class(self, of_label: Mapping[str, Any], elsewhere: Mapping[str, Mapping[str, Any]]) -> None:
        """Checks that no override names another data set than the cell's label of the axis ``data``.

        That label is a column of the results, and one of the two data sets would replace the other in silence.

        Args:
            of_label: overrides of the label.
            elsewhere: the cell's other overrides, by where they stand.

        Raises:
            InputError: an override names another data set.
        """
        name_of_label = overridden(self.config, _training(of_label))["data"]["class_path"]
        for where, override in elsewhere.items():
            for key, value in override.items():
                name = _data_class(key, value)
                if name is None:
                    continue
                same = class_named(name, FederatedDataModule) is class_named(name_of_label, FederatedDataModule)
                short = name_of_label.rpartition(".")[2]
                require(
                    same,
                    f"the data set of a cell in the axis `data` of {self.file} (here {short}) and nowhere else",
                    f"`{key}: {name}` in {where}",
                    "Write it as a label: `axes: {data: {NAME: {}}}` with the name of its folder, or give --data NAME.",
                )

    def _own_data(self) -> str:
        """Name of the data set in the training's configuration."""
        kind = class_named(self.config["data"]["class_path"], FederatedDataModule)
        given = self.config["data"].get("init_args", {})
        chosen = (f for f in kind.folders if kind.folder_arguments(f).items() <= given.items())
        return next(chosen, next(iter(kind.folders), kind.__name__))

    def _choose_data(self, name: str) -> dict[str, Any]:
        base = class_named(self.config["data"]["class_path"], FederatedDataModule)
        wanted = kind_of(base)
        # Of other kinds there may be another class for the same folder.
        fitting = (kind for kind in below(FederatedDataModule) if issubclass(kind, wanted))
        kinds = {folder: kind for kind in fitting for folder in vars(kind).get("folders", ())}
        if name == base.__name__ and not base.folders:
            return {}
        kind = class_named(name, FederatedDataModule) if "." in name else kinds.get(name)
        if kind is None or not issubclass(kind, wanted):
            path = f"the path of a subclass of {wanted.__name__}"
            raise InputError(
                expected=f"a data set for {self.name} ({', '.join(sorted(kinds))}), or {path}",
                found=repr(name),
                way_out=did_you_mean(name, sorted(kinds), "Choose one of these."),
            )
        path = name if "." in name else kind.__name__
        chosen = kind.folder_arguments(name) if name in kind.folders else {}
        return {"data": {"class_path": path, "init_args": chosen}}


def read_table(path: Path) -> Table:
    """Table of a file.

    Raises:
        InputError: the file is missing or not YAML, or has an unknown key or a wrong value.
    """
    find_in_current_folder()  # for class paths of the table, which is the user's own
    content = read_content(path)
    for key in ("train", "metrics"):
        require(key in content, f"{key} in {path}", "none", "docs/reference/tables.md lists the keys.")
    scales = content.get("scales", {})
    check_keys(scales, ("small", "paper"), f"scales in {path}")
    for scale, part in scales.items():
        check_part(part or {}, f"scale {scale}", path)
    for part in content.get("also", []):
        check_part(part, "a part of `also`", path)
    base, here = Path(content["train"]), Path.cwd()
    shown = base.relative_to(here) if base.is_relative_to(here) else base
    return Table(path.stem, shown, read_training(base), content)


def _is_there(where: Mapping[str, Any], setting: Mapping[str, Label]) -> bool:
    """Whether a cell has the labels of other axes to which a label is restricted."""
    check_keys(where, list(setting), "axes in `where`")
    return all(setting[axis] in listed(labels) for axis, labels in where.items())


def _training(override: Mapping[str, Any]) -> dict[str, Any]:
    """What of an override belongs to the training."""
    return {key: value for key, value in override.items() if key not in OF_A_CELL}


def _data_class(key: str, value: Any) -> str | None:
    """Class of the data that an entry of an override names; None if it names none."""
    if key == "data" and isinstance(value, Mapping):
        value = value.get("class_path")
    elif key not in ("data", "data.class_path"):
        return None
    return value if isinstance(value, str) else None


def _merged(overrides: Sequence[Mapping[str, Any]], key: str) -> dict[str, Any]:
    return {name: value for one in overrides for name, value in one.get(key, {}).items()}


def _on_data(config: Config, seed: int, root: str | None) -> Config:
    """Configuration with the seed and the root of the data, where the data module takes them."""
    takes = set(argument_names(class_named(config["data"]["class_path"], FederatedDataModule)))
    given = {"seed": seed, **({} if root is None else {"root": root})}
    return overridden(config, {f"data.{name}": value for name, value in given.items() if name in takes})


def _attacks(table: Mapping[str, Any], overrides: Sequence[Mapping[str, Any]]) -> dict[str, Arguments]:
    """Arguments of a cell's attacks; an override selects attacks by a list of names, or changes arguments."""
    chosen = {name: dict(arguments or {}) for name, arguments in table.items()}
    for name in chosen:
        find(name)
    for one in overrides:
        given = one.get("attacks")
        for name in given or ():
            check_keys([name], list(table), "attacks of the table")
        if isinstance(given, Mapping):
            chosen = {name: {**own, **(given.get(name) or {})} for name, own in chosen.items()}
        elif given is not None:
            chosen = {name: own for name, own in chosen.items() if name in given}
    common = _merged(overrides, "arguments")
    takes = {name: {*argument_names(find(name))} if common else set() for name in chosen}
    return {name: {**{k: v for k, v in common.items() if k in takes[name]}, **own} for name, own in chosen.items()}


def _recorded(config: Config, record: Mapping[str, Any]) -> Config:
    """Configuration with the table's recorder instead of its own."""
    given = config.get("trainer", {}).get("callbacks") or []
    callbacks = [
        one
        for one in (given if isinstance(given, list) else [given])
        if str(one.get("class_path") if isinstance(one, Mapping) else one).rpartition(".")[2]
        not in ("DeltaRecorder", "RoundProgress")
    ]
    recorder = {"class_path": "DeltaRecorder", "init_args": dict(record)}
    return overridden(config, {"trainer.callbacks": [recorder, *callbacks]})
