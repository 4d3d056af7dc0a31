"""Data sets of posts and photos, of which every user has several devices."""

from typing import TYPE_CHECKING

from protocol.exports import exports

if TYPE_CHECKING:
    from datamodules.devices.base import Background as Background
    from datamodules.devices.base import OwnedDataModule as OwnedDataModule
    from datamodules.devices.blog import Blog as Blog
    from datamodules.devices.device_split import Devices as Devices
    from datamodules.devices.open_images import OpenImages as OpenImages
    from datamodules.devices.photos import PhotoDataModule as PhotoDataModule
    from datamodules.devices.pipa import PIPA as PIPA
    from datamodules.devices.sent140 import Sentiment140 as Sentiment140
    from datamodules.devices.synthetic_posts import SyntheticPosts as SyntheticPosts
    from datamodules.devices.text import OwnedTextDataModule as OwnedTextDataModule
    from datamodules.devices.yelp import Yelp as Yelp

__all__ = exports(__name__)
