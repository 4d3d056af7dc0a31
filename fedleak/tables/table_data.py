"""Data sets of a table's cells: by the names of their folders or classes, one for each cell."""

from collections.abc import Mapping
from typing import Any

from fedleak.core.errors import InputError, require
from fedleak.core.parameters import argument_names
from fedleak.tables.overrides import Config, below, class_named, kind_of, overridden
from fedleak.tables.table_file import OF_A_CELL
from fedleak.training.data import FederatedDataModule
from fedleak_recorder.nearest import did_you_mean


def training_part(override: Mapping[str, Any]) -> dict[str, Any]:
    """What of an override belongs to the training."""
    return {key: value for key, value in override.items() if key not in OF_A_CELL}


def _data_class(key: str, value: Any) -> str | None:
    """Class of the data that an entry of an override names; None if it names none."""
    if key == "data" and isinstance(value, Mapping):
        value = value.get("class_path")
    elif key not in ("data", "data.class_path"):
        return None
    if isinstance(value, str):
        return value
    return None


def on_data(config: Config, seed: int, root: str | None) -> Config:
    """Configuration with the seed and the root of the data, where the data module takes them."""
    arguments = argument_names(class_named(config["data"]["class_path"], FederatedDataModule))
    overrides: dict[str, Any] = {}
    if "seed" in arguments:
        overrides["data.seed"] = seed
    if "root" in arguments and root is not None:
        overrides["data.root"] = root
    return overridden(config, overrides)


def check_data_class(
    config: Config, of_label: Mapping[str, Any], elsewhere: Mapping[str, Mapping[str, Any]], *, file: str
) -> None:
    """Checks that no override names another data set than the cell's label of the axis ``data``.

    That label is a column of the results, and one of the two data sets would replace the other in silence.

    Args:
        config: configuration of the table's training.
        of_label: overrides of the label.
        elsewhere: the cell's other overrides, by where they stand.
        file: name of the table's file.

    Raises:
        InputError: an override names another data set.
    """
    name_of_label = overridden(config, training_part(of_label))["data"]["class_path"]
    for where, override in elsewhere.items():
        for key, value in override.items():
            name = _data_class(key, value)
            if name is None:
                continue
            is_same = class_named(name, FederatedDataModule) is class_named(name_of_label, FederatedDataModule)
            short = name_of_label.rpartition(".")[2]
            require(
                is_same,
                f"the data set of a cell in the axis `data` of {file} (here {short}) and nowhere else",
                f"`{key}: {name}` in {where}",
                "Write it as a label: `axes: {data: {NAME: {}}}` with the name of its folder, or give --data NAME.",
            )


def own_data_name(config: Config) -> str:
    """Name of the data set in the training's configuration."""
    data_class = class_named(config["data"]["class_path"], FederatedDataModule)
    arguments = config["data"].get("init_args", {})
    # The first folder whose arguments the configuration has, else the first, else the class.
    for folder in data_class.folders:
        if data_class.folder_arguments(folder).items() <= arguments.items():
            return folder
    return next(iter(data_class.folders), data_class.__name__)


def data_override(config: Config, name: str, table: str) -> dict[str, Any]:
    """Override that chooses a data set of the configuration's kind by the name of its folder, or by its class path.

    Raises:
        InputError: there is no such data set for the table.
    """
    base = class_named(config["data"]["class_path"], FederatedDataModule)
    # Of other kinds there may be another class for the same folder.
    kind = kind_of(base)
    class_by_folder: dict[str, type[FederatedDataModule]] = {}
    for candidate in below(FederatedDataModule):
        if issubclass(candidate, kind):
            class_by_folder |= dict.fromkeys(vars(candidate).get("folders", ()), candidate)
    if name == base.__name__ and not base.folders:
        return {}
    data_class = class_named(name, FederatedDataModule) if "." in name else class_by_folder.get(name)
    if data_class is None or not issubclass(data_class, kind):
        folders = sorted(class_by_folder)
        path = f"the path of a subclass of {kind.__name__}"
        raise InputError(
            expected=f"a data set for {table} ({', '.join(folders)}), or {path}",
            found=repr(name),
            way_out=did_you_mean(name, folders, "Choose one of these."),
        )
    arguments = {}
    if name in data_class.folders:
        arguments = data_class.folder_arguments(name)
    class_path = name if "." in name else data_class.__name__
    return {"data": {"class_path": class_path, "init_args": arguments}}
