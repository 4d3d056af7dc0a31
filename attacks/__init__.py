"""Attacks on federated learning, by question; ``from fedleak.attacks import Direction`` gives any of them."""

from typing import TYPE_CHECKING

from fedleak.core.exports import attach

if TYPE_CHECKING:
    # In the order in which attacks are listed and run.
    # ruff: isort: off
    from fedleak.core.attack import Attack as Attack
    from fedleak.attacks.interactions import *  # noqa: F403
    from fedleak.attacks.recommendation import *  # noqa: F403
    from fedleak.attacks.ranking import *  # noqa: F403
    from fedleak.attacks.images import *  # noqa: F403
    from fedleak.attacks.record_membership import *  # noqa: F403
    from fedleak.attacks.source import *  # noqa: F403
    from fedleak.attacks.membership import *  # noqa: F403
    from fedleak.attacks.re_identification import *  # noqa: F403
    from fedleak.attacks.matching import *  # noqa: F403
    from fedleak.attacks.identifiability import *  # noqa: F403
    from fedleak.attacks.composition import *  # noqa: F403
    from fedleak.attacks.reconstruction import *  # noqa: F403
    from fedleak.attacks.words import *  # noqa: F403
    from fedleak.attacks.attributes import *  # noqa: F403
    from fedleak.attacks.linkability import *  # noqa: F403
    from fedleak.attacks.sums_over_rounds import *  # noqa: F403
    from fedleak.attacks.declared_privacy import *  # noqa: F403
else:
    __getattr__, __dir__, __all__ = attach(
        __name__,
        {
            "Attack": "fedleak.core.attack",
        },
        packages=(
            "fedleak.attacks.interactions",
            "fedleak.attacks.recommendation",
            "fedleak.attacks.ranking",
            "fedleak.attacks.images",
            "fedleak.attacks.record_membership",
            "fedleak.attacks.source",
            "fedleak.attacks.membership",
            "fedleak.attacks.re_identification",
            "fedleak.attacks.matching",
            "fedleak.attacks.identifiability",
            "fedleak.attacks.composition",
            "fedleak.attacks.reconstruction",
            "fedleak.attacks.words",
            "fedleak.attacks.attributes",
            "fedleak.attacks.linkability",
            "fedleak.attacks.sums_over_rounds",
            "fedleak.attacks.declared_privacy",
        ),
    )
