"""Class paths of older versions, in whose configurations, checkpoints, tables and manifests they still stand."""

import importlib
import importlib.util
import re
from collections.abc import Mapping
from typing import Any

MOVED = {
    # Before 0.2, each room was a package at the top of the checkout.
    "attacks": "fedleak.attacks",
    "attacks.answers": "fedleak.core.answers",
    "attacks.base": "fedleak.core.attack",
    "attacks.estimates": "fedleak.core.estimates",
    "attacks.registry": "fedleak.evaluation.registry",
    "attacks.scoring": "fedleak.core.scoring",
    "callbacks": "fedleak.callbacks",
    "client": "fedleak.client",
    "datamodules": "fedleak.datamodules",
    "datamodules.base": "fedleak.training.data",
    "datamodules.candidates": "fedleak.training.candidates",
    "datamodules.io": "fedleak.core.io",
    "datamodules.people": "fedleak.training.people",
    "datamodules.schedule": "fedleak.training.schedule",
    "defenses": "fedleak.defenses",
    "evaluation": "fedleak.evaluation",
    "experiments": "fedleak.tables",
    "modules": "fedleak.modules",
    "modules.federated": "fedleak.training.federated",
    "modules.lightning": "fedleak.training.lightning",
    "modules.server": "fedleak.training.server_optimizer",
    "protocol": "fedleak.core",
    "recordings": "fedleak.recordings",
    "reports": "fedleak.reports",
    "server": "fedleak.server",
    # Older still: what a server does besides averaging lay in two other rooms.
    "attacks.manipulation": "fedleak.server",
    "modules.image_manipulation": "fedleak.server",
}
"""New module by old one; the longest that a path begins with counts."""
_PATH = re.compile(r"[A-Za-z_]\w*(\.\w+)+", re.ASCII)


def current_path(path: str) -> str:
    """Today's path of a class of fedleak that has an old one; any other path unchanged.

    A path of the user's own, such as ``modules.MyNet`` from a folder ``modules``, stays what it is: only what fedleak
    has today is renamed. Nothing is imported but the packages of fedleak.

    >>> current_path("modules.learners.fncf.FNCF")
    'fedleak.modules.learners.fncf.FNCF'
    >>> current_path("modules.MyNet")
    'modules.MyNet'
    """
    if _PATH.fullmatch(path) is None:
        return path
    parts = path.split(".")
    for length in range(len(parts) - 1, 0, -1):
        moved = MOVED.get(".".join(parts[:length]))
        if moved is not None:
            renamed = ".".join([moved, *parts[length:]])
            return renamed if _is_there(renamed) else _exported(moved, parts[-1]) or path
    return path


def with_current_paths(content: Any) -> Any:
    """A configuration in which each old class path is today's, see `current_path`."""
    if isinstance(content, Mapping):
        return {key: with_current_paths(value) for key, value in content.items()}
    if isinstance(content, list):
        return [with_current_paths(value) for value in content]
    if isinstance(content, str):
        return current_path(content)
    return content


def _is_there(path: str) -> bool:
    """Whether a package of fedleak exports the name, or has the module with that class."""
    module, _, name = path.rpartition(".")
    return _exported(module, name) is not None or _has_file(module)


def _has_file(module: str) -> bool:
    """Whether a module of fedleak is there and no package, which would export its classes by name."""
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        return False
    return spec is not None and spec.submodule_search_locations is None


def _exported(package: str, name: str) -> str | None:
    """Path of a name that a package exports; None if it does not."""
    try:
        spec = importlib.util.find_spec(package)
        exports = importlib.import_module(package).__all__ if spec and spec.submodule_search_locations else ()
    except (ImportError, ValueError, AttributeError):
        return None
    return f"{package}.{name}" if name in exports else None
