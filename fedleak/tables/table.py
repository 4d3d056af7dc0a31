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
from fedleak.tables.overrides import Config, overridden
from fedleak.tables.table_data import check_data_class, data_override, on_data, own_data_name, training_part
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
            message = " ".join(str(error).split())[:100]
            raise InputError(
                expected=f"values of the forms in docs/reference/tables.md in the table {self.name}",
                found=f"{type(error).__name__}: {message}",
                way_out="Correct the table.",
            ) from error

    def _cells(self, choice: Choice) -> list[Cell]:
        # The table at its scale, and each part of `also` over it.
        scaled = over(self.content, self.content.get("scales", {}).get(choice.scale) or {})
        cells = list(self._cells_of(scaled, choice))
        for part in scaled.get("also", []):
            cells += self._cells_of(over(scaled, part), choice)
        # Trainings of other seeds have the same configuration but for the seed.
        keys = Counter(cell.key for cell in cells)
        of_first_seed = [cell for cell in cells if cell.seed == 0]
        for cell in tqdm(of_first_seed, desc="check", unit="cell", delay=3, leave=False):
            way_out = "Give the labels of an axis different names."
            require(keys[cell.key] == 1, "cells with different labels", f"{cell.key} twice", way_out)
            try:
                cell.check()
            except InputError as error:
                labels = ", ".join(f"{axis} {label}" for axis, label in cell.setting.items())
                raise InputError(
                    expected=f"{error.expected} (in the cell with {labels} of {self.file})",
                    found=error.found,
                    way_out=error.way_out,
                ) from error
        self._check_metrics(cells)
        return cells

    def _check_metrics(self, cells: Sequence[Cell]) -> None:
        """Checks that an attack or step measures each metric; importing an attack's class registers its metrics."""
        measured: set[str] = set()
        for cell in cells:
            for step in after_steps(cell.after):
                measured.update(metric_names(step.metrics))
        known_metrics = {*METRICS, *DERIVED, *measured}
        expected = f"metrics of {self.name} that an attack or a step of `after` measures"
        for name in self.metrics:
            way_out = did_you_mean(str(name), known_metrics, "Correct `metrics`, or add the step.")
            require(name in known_metrics, expected, repr(name), way_out)

    def _cells_of(self, part: Mapping[str, Any], choice: Choice) -> Iterator[Cell]:
        """Cells of the table, or of one of its parts: a cell for each combination of labels and each seed."""
        axes = {}
        for name, values in part.get("axes", {}).items():
            if values is not None:
                axes[name] = labels_of(values, name, self.file)
        axes["data"] = self._data(axes.get("data", {own_data_name(self.config): {}}), choice.data)
        # Overrides of all cells: keys of the part that belong to cells, and its `set`.
        of_cells = {key: part[key] for key in OF_A_CELL if key in part and key not in ("attacks", "setting")}
        of_all = checked(part.get("set", {}), f"`set` of {self.file}")
        for labels in itertools.product(*axes.values()):
            setting = dict(zip(axes, labels, strict=True))
            of_labels = {name: axes[name][label] for name, label in setting.items()}
            if not all(_is_there(override.get("where", {}), setting) for override in of_labels.values()):
                continue
            # A data set of the command line replaces that of the whole table.
            besides_data = {"`set`": of_all if choice.data is None else {}, "--set": choice.overrides}
            for name, label in setting.items():
                if name != "data":
                    besides_data[f"axis {name}, label {label}"] = of_labels[name]
            check_data_class(self.config, of_labels["data"], besides_data, file=self.file)
            # Later overrides win: those of all cells, of each label in the order of the axes, of the command line.
            filled_labels = [filled(of_labels[name], label) for name, label in setting.items()]
            overrides: list[Mapping[str, Any]] = [of_cells, of_all, *filled_labels]
            training = [training_part(override) for override in overrides]
            config = functools.reduce(overridden, [*training, choice.overrides], self.config)
            rounds = _merged(overrides, "rounds")
            check_keys(rounds, list(Rounds.__dataclass_fields__), "options of `rounds`")
            after: list[Any] = []
            for override in overrides:
                after += override.get("after", [])
            for seed in range(max(choice.seeds, part.get("seeds", 1))):
                attacks = _attacks(part.get("attacks", {}), overrides)
                attacks |= {name: {} for name in choice.attacks}
                yield Cell(
                    table=self.name,
                    labels=tuple(str(label) for label in labels),
                    setting={**part.get("setting", {}), **setting, **_merged(overrides, "setting")},
                    base=self.base,
                    config=_recorded(on_data(config, seed, choice.root), _merged(overrides, "record")),
                    attacks=attacks,
                    messages=_merged(overrides, "messages"),
                    rounds=Rounds(**rounds),
                    after=list(after),
                    seed=seed,
                    victims=choice.victims,
                    out=choice.out,
                    progress=choice.progress,
                )

    def _data(self, labels: Mapping[Label, Mapping[str, Any]], only: str | None) -> dict[Label, Mapping[str, Any]]:
        """Overrides by name of the data sets to run: those of the table, or `only` one of the command line."""
        names: Sequence[Label] = list(labels) if only is None else [only]
        return {name: {**data_override(self.config, str(name), self.name), **labels.get(name, {})} for name in names}


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
    base = Path(content["train"])
    # Commands that are printed have a short path where the configuration lies below this folder.
    short_base = base.relative_to(Path.cwd()) if base.is_relative_to(Path.cwd()) else base
    return Table(path.stem, short_base, read_training(base), content)


def _is_there(where: Mapping[str, Any], setting: Mapping[str, Label]) -> bool:
    """Whether a cell has the labels of other axes to which a label is restricted."""
    check_keys(where, list(setting), "axes in `where`")
    return all(setting[axis] in listed(labels) for axis, labels in where.items())


def _merged(overrides: Sequence[Mapping[str, Any]], key: str) -> dict[str, Any]:
    """Options that overrides have under a key; those of later overrides win."""
    merged: dict[str, Any] = {}
    for override in overrides:
        merged |= override.get(key, {})
    return merged


def _attacks(table: Mapping[str, Any], overrides: Sequence[Mapping[str, Any]]) -> dict[str, Arguments]:
    """Arguments of a cell's attacks; an override selects attacks by a list of names, or changes arguments."""
    chosen = {name: dict(arguments or {}) for name, arguments in table.items()}
    for name in chosen:
        find(name)
    for override in overrides:
        attacks = override.get("attacks")
        if attacks is None:
            continue
        check_keys(attacks, list(table), "attacks of the table")
        if isinstance(attacks, Mapping):
            for name, changed in attacks.items():
                if name in chosen:
                    chosen[name] |= changed or {}
        else:
            chosen = {name: arguments for name, arguments in chosen.items() if name in attacks}
    # Arguments of all attacks, for each that takes them and has none of its own.
    common = _merged(overrides, "arguments")
    if not common:
        return chosen
    with_common = {}
    for name, arguments in chosen.items():
        names = {*argument_names(find(name))}
        taken = {key: value for key, value in common.items() if key in names}
        with_common[name] = {**taken, **arguments}
    return with_common


def _recorded(config: Config, record: Mapping[str, Any]) -> Config:
    """Configuration with the table's recorder instead of its own."""
    callbacks = config.get("trainer", {}).get("callbacks") or []
    if not isinstance(callbacks, list):
        callbacks = [callbacks]
    with_recorder: list[Any] = [{"class_path": "DeltaRecorder", "init_args": dict(record)}]
    for callback in callbacks:
        class_path = callback.get("class_path") if isinstance(callback, Mapping) else callback
        # A table has a progress bar of its own.
        if str(class_path).rpartition(".")[2] not in ("DeltaRecorder", "RoundProgress"):
            with_recorder.append(callback)
    return overridden(config, {"trainer.callbacks": with_recorder})
