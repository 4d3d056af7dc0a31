"""Attacks on federated learning, by question; ``from attacks import Direction`` gives any of them."""

from typing import TYPE_CHECKING

from protocol.exports import exports

if TYPE_CHECKING:
    # In the order in which attacks are listed and run.
    # ruff: isort: off
    from attacks.base import Attack as Attack
    from attacks.interactions import *  # noqa: F403
    from attacks.recommendation import *  # noqa: F403
    from attacks.ranking import *  # noqa: F403
    from attacks.images import *  # noqa: F403
    from attacks.record_membership import *  # noqa: F403
    from attacks.source import *  # noqa: F403
    from attacks.membership import *  # noqa: F403
    from attacks.re_identification import *  # noqa: F403
    from attacks.matching import *  # noqa: F403
    from attacks.identifiability import *  # noqa: F403
    from attacks.composition import *  # noqa: F403
    from attacks.reconstruction import *  # noqa: F403
    from attacks.words import *  # noqa: F403
    from attacks.attributes import *  # noqa: F403
    from attacks.linkability import *  # noqa: F403
    from attacks.sums_over_rounds import *  # noqa: F403
    from attacks.declared_privacy import *  # noqa: F403

__all__ = exports(__name__)
