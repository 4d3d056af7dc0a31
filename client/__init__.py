"""What a client runs on the model that it receives: the server wrote it, it is public, and it holds no data."""

from typing import TYPE_CHECKING

from protocol.exports import exports

if TYPE_CHECKING:
    from client.cohort import Cohort as Cohort
    from client.engine import *  # noqa: F403

__all__ = exports(__name__)
