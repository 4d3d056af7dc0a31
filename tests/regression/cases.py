"""Every table and training made small as ``reductions.yaml`` says, and run through the public commands."""

import functools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from fedleak.commands import program, train
from fedleak.core.places import table_files
from fedleak.tables.table_file import read_content
from tests.places import CONFIGS
from tests.tables.tables import without_pages

Row = tuple[str, str, str]
"""Setting as JSON with sorted keys, attack, metric."""
Values = dict[Row, tuple[float, int]]
"""Mean, NaN for none, and number of people."""


@functools.cache
def reductions() -> dict[str, dict[str, Any]]:
    """By name of a table or training, what makes it small; the keys are explained in the file."""
    text = Path(__file__).with_name("reductions.yaml").read_text(encoding="utf-8")
    parts: dict[str, dict[str, dict[str, Any]]] = yaml.safe_load(text)
    return {**parts["tables"], **parts["trainings"]}


def names(*folders: str) -> list[str]:
    """Of the files in some folders of configs/."""
    return sorted(path.stem for folder in folders for path in (CONFIGS / folder).rglob("*.yaml"))


def run_cases() -> list[str]:
    """Names of what is run: tables and trainings with an entry in ``reductions.yaml``, without those left out."""
    found = reductions()
    return [name for name in names("paper", "table", "train") if name in found and "left_out" not in found[name]]


def shrunk(content: Any, change: Any) -> Any:
    """A configuration with some of its keys changed.

    A mapping changes the keys that it names, and removes those that it gives as null. Over a list, it keeps the entries
    whose places it names, each changed. Anything else stands in place of what was there.
    """
    if isinstance(content, dict) and isinstance(change, dict):
        kept = {key: value for key, value in content.items() if key not in change}
        return kept | {key: shrunk(content.get(key), new) for key, new in change.items() if new is not None}
    if isinstance(content, list) and isinstance(change, dict):
        return [shrunk(content[place], value) for place, value in change.items()]
    return change


def run_case(name: str, *, data: Path, folder: Path) -> Values:
    """Runs a table, or a training and the audit of its recording; draws no page.

    Args:
        name: of its file.
        data: folder of the data sets.
        folder: an empty folder, for all that the commands write.
    """
    with without_pages():
        if name in table_files():
            _done(program.main(table_command(name, data=data, folder=folder)))
        else:
            _train_and_audit(name, data, folder)
    return read_values(folder / "out" / "results.json")


def table_command(name: str, *, data: Path, folder: Path) -> list[str]:
    """Arguments of ``fedleak`` that run a table, made small, into ``folder/out``."""
    how = reductions()[name]
    content = shrunk(read_content(table_files()[name]), how.get("set", {}))
    where = ["--data.root", str(data), "--out", str(folder / "out")]
    return ["reproduce", _written(folder / f"{name}.yaml", content), *where, "--seeds", "1", "--jobs", "1", *_more(how)]


def _train_and_audit(name: str, data: Path, folder: Path) -> None:
    how, out = reductions()[name], str(folder / "out")
    content = yaml.safe_load((CONFIGS / "train" / f"{name}.yaml").read_text(encoding="utf-8"))
    small = _written(folder / f"{name}.yaml", shrunk(content, how.get("set", {})))
    root = [] if how.get("generated") else ["--data.root", str(data)]
    _done(train.run(["fit", "--config", small, "--trainer.default_root_dir", out, *root]))
    # Every attack has frozen values, also those that a default audit leaves out.
    _done(program.main(["audit", f"{out}/deltas", "--published", "--out", out, *_more(how)]))


def _written(path: Path, content: Any) -> str:
    path.write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")
    return str(path)


def _more(how: Mapping[str, Any]) -> list[str]:
    more: list[str] = how.get("args", [])
    return more


def _done(status: int) -> None:
    if status:
        raise RuntimeError(f"the command ended with exit status {status}")


def read_values(path: Path) -> Values:
    """The means of a results.json."""
    values: Values = {}
    for result in json.loads(path.read_text(encoding="utf-8"))["results"]:
        row = json.dumps(result["setting"], sort_keys=True), result["attack"], result["metric"]
        if row in values:
            raise ValueError(f"two results of {row} in {path}")
        values[row] = float("nan" if result["mean"] is None else result["mean"]), result["n"]
    return values


def attacks_in(name: str) -> Mapping[str, Any]:
    """The attacks that a table names."""
    attacks: dict[str, Any] = read_content(table_files()[name]).get("attacks", {})
    return attacks
