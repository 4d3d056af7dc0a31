"""Attacks on federated learning: ``from attacks import Direction`` gives any attack; a room is imported when needed."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from attacks.composition import *  # noqa: F403
    from attacks.deanonymization import *  # noqa: F403
    from attacks.identifiability import *  # noqa: F403
    from attacks.images import *  # noqa: F403
    from attacks.interactions import *  # noqa: F403
    from attacks.membership import *  # noqa: F403
    from attacks.ranking import *  # noqa: F403
    from attacks.recommendation import *  # noqa: F403

ROOMS = (
    *("interactions", "recommendation", "ranking", "images", "membership"),
    *("deanonymization", "identifiability", "composition"),
)
"""Folders of attacks/ that export attacks in ``__all__``."""


def __getattr__(name: str) -> Any:
    for room in () if name.startswith("_") else ROOMS:
        module = importlib.import_module(f"attacks.{room}")
        if name in module.__all__:
            return getattr(module, name)
    raise AttributeError(f"module 'attacks' has no attribute {name!r}")


def __dir__() -> list[str]:
    return ["ROOMS", *(name for room in ROOMS for name in importlib.import_module(f"attacks.{room}").__all__)]
