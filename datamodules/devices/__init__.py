"""Data sets of posts and photos, of which every user has several devices."""

from typing import TYPE_CHECKING

from fedleak.core.exports import attach

if TYPE_CHECKING:
    from fedleak.datamodules.devices.base import Background as Background
    from fedleak.datamodules.devices.base import OwnedDataModule as OwnedDataModule
    from fedleak.datamodules.devices.blog import Blog as Blog
    from fedleak.datamodules.devices.device_split import Devices as Devices
    from fedleak.datamodules.devices.open_images import OpenImages as OpenImages
    from fedleak.datamodules.devices.photos import PhotoDataModule as PhotoDataModule
    from fedleak.datamodules.devices.pipa import PIPA as PIPA
    from fedleak.datamodules.devices.sent140 import Sentiment140 as Sentiment140
    from fedleak.datamodules.devices.synthetic_posts import SyntheticPosts as SyntheticPosts
    from fedleak.datamodules.devices.text import OwnedTextDataModule as OwnedTextDataModule
    from fedleak.datamodules.devices.yelp import Yelp as Yelp
else:
    __getattr__, __dir__, __all__ = attach(
        __name__,
        {
            "Background": "fedleak.datamodules.devices.base",
            "OwnedDataModule": "fedleak.datamodules.devices.base",
            "Blog": "fedleak.datamodules.devices.blog",
            "Devices": "fedleak.datamodules.devices.device_split",
            "OpenImages": "fedleak.datamodules.devices.open_images",
            "PhotoDataModule": "fedleak.datamodules.devices.photos",
            "PIPA": "fedleak.datamodules.devices.pipa",
            "Sentiment140": "fedleak.datamodules.devices.sent140",
            "SyntheticPosts": "fedleak.datamodules.devices.synthetic_posts",
            "OwnedTextDataModule": "fedleak.datamodules.devices.text",
            "Yelp": "fedleak.datamodules.devices.yelp",
        },
    )
