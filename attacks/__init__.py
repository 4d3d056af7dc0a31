"""Attacks on federated learning, by question; ``from attacks import Direction`` gives any of them."""

from typing import TYPE_CHECKING

from fedleak.core.exports import exports

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

__all__ = exports(__name__)
