"""A server that probes its clients one by one."""

from typing import TYPE_CHECKING

from protocol.exports import exports

if TYPE_CHECKING:
    from modules.probing.campaign import Campaign as Campaign
    from modules.probing.campaign import Probing as Probing

__all__ = exports(__name__)
