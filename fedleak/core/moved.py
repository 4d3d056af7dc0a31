"""Class paths of older versions, in whose configurations, checkpoints, tables and manifests they still stand."""

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedleak.core.places import PACKAGE

MOVED = {
    # Before 0.2, each room was a package at the top of the checkout.
    "attacks": "attacks",
    "attacks.answers": "core.answers",
    "attacks.base": "core.attack",
    "attacks.estimates": "core.estimates",
    "attacks.registry": "evaluation.registry",
    "attacks.scoring": "core.scoring",
    "callbacks": "callbacks",
    "client": "client",
    "datamodules": "datamodules",
    "datamodules.base": "training.data",
    "datamodules.candidates": "training.candidates",
    "datamodules.io": "core.io",
    "datamodules.people": "training.people",
    "datamodules.schedule": "training.schedule",
    "defenses": "defenses",
    "evaluation": "evaluation",
    "experiments": "tables",
    "experiments.watching": "evaluation.watching",
    "modules": "modules",
    "modules.federated": "training.federated",
    "modules.learner": "training.learner",
    "modules.lightning": "training.lightning",
    "modules.round_record": "training.round_record",
    "modules.server": "training.server_optimizer",
    "protocol": "core",
    "recordings": "recordings",
    "reports": "reports",
    "server": "server",
    "attacks.manipulation": "server",
    "modules.image_manipulation": "server",
}
"""Place below ``fedleak`` by old module; the longest that a path begins with counts."""
OLDER = ("attacks.manipulation", "modules.image_manipulation")
"""Where, older still, lay what a server does besides averaging."""
MOVED_SINCE = {
    "callbacks.requeue": "training.lightning.requeue",
    "callbacks.round_progress": "training.lightning.round_progress",
    "callbacks.run_config": "training.lightning.run_config",
    "callbacks.stop_report": "recordings.stop_report",
    "defenses.manipulation_checks": "defenses.within_list_checks",
    "core.metric_table": "core.metric",
    "core.view": "core.release",
    "modules.learners.network": "training.network_learner",
    "tables.after.attribute_ceiling": "callbacks.steps.attribute_ceiling",
    "tables.after.devices": "callbacks.steps.devices",
    "tables.after.identifiability": "callbacks.steps.identifiability",
    "tables.after.image_quality": "callbacks.steps.image_quality",
    "tables.after.model_quality": "callbacks.steps.devices",
}
"""Place below ``fedleak`` by that of 0.2, for modules of which all classes or some lie elsewhere today."""
_PATH = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+", re.ASCII)


def current_path(path: str) -> str:
    """Today's path of a class of fedleak that has an old one; any other path unchanged.

    A path of the user's own, such as ``modules.MyNet`` from a folder ``modules``, stays what it is: only where a file
    of fedleak defines the class is it renamed. A class of the user's with the whole old path of one of fedleak's is
    taken for that. The files are read, and nothing is imported: a stranger may have written the path.

    >>> current_path("modules.FNCF")
    'fedleak.modules.learners.fncf.FNCF'
    >>> current_path("modules.MyNet")
    'modules.MyNet'
    """
    if _PATH.fullmatch(path) is None:
        return path
    *modules, name = path.split(".")
    if modules[0] == "fedleak":
        return _path_of(_modules_since(modules[1:]), name) or path
    # The longest old module that the path begins with decides.
    for length in range(len(modules), 0, -1):
        old = ".".join(modules[:length])
        if old not in MOVED:
            continue
        room = MOVED[old].split(".")
        # In the older of the old places, modules had other names: the class may be in any module of the room.
        module = room
        if old not in OLDER:
            module = [*room, *modules[length:]]
        return _path_of([module, *_modules_since(module)], name) or path
    return path


def _modules_since(module: Sequence[str]) -> list[list[str]]:
    """Where classes of a module, or of the modules of a package, have gone since 0.2."""
    prefix = ".".join(module) + "."
    moved = [new for old, new in MOVED_SINCE.items() if f"{old}.".startswith(prefix)]
    return [new.split(".") for new in dict.fromkeys(moved)]


def _path_of(modules: Iterable[Sequence[str]], name: str) -> str:
    """Path of a class in the first of some places below ``fedleak`` that defines it; empty if none does."""
    for module in modules:
        file = _defining_file(PACKAGE.joinpath(*module), name)
        if file is not None:
            return ".".join(["fedleak", *file.relative_to(PACKAGE).with_suffix("").parts, name])
    return ""


def with_current_paths(content: Any) -> Any:
    """A configuration in which each old class path is today's, see `current_path`."""
    if isinstance(content, Mapping):
        return {key: with_current_paths(value) for key, value in content.items()}
    if isinstance(content, list):
        return [with_current_paths(value) for value in content]
    if isinstance(content, str):
        return current_path(content)
    return content


def _defining_file(module: Path, name: str) -> Path | None:
    """File of a module, or of any module of a package, that defines a class; None if none does."""
    file = module.with_suffix(".py")
    files = [file]
    if not file.is_file():
        files = sorted(module.rglob("*.py"))
    # The text is searched: to import a module is slow, and may fail for want of an optional package.
    definition = re.compile(rf"^class {name}\b", re.MULTILINE)
    for path in files:
        if definition.search(path.read_text(encoding="utf-8")):
            return path
    return None
