"""OpenImages (Kuznetsova 2020): photographs from Flickr by author, with labels of the whole image."""

from typing import Any

import numpy as np

from datamodules.devices.open_images_files import FOLDER, read_open_images
from datamodules.devices.photos import PhotoDataModule
from datamodules.devices.tagged_photos import TaggedPhotos
from datamodules.devices.user_filter import UserFilter


class OpenImages(PhotoDataModule):
    """Photographs by author; the paper has 317,008 of 327 authors, with 18 labels that it does not list.

    Reads ``root/openimages/``, see `read_open_images`. The background are the authors who take
    no part. The other arguments are those of `PhotoDataModule`.

    Args:
        users: see `OwnedDataModule`; the paper's have at least 500 images.
        most_classes: see `PhotoDataModule`.
    """

    name = FOLDER
    folders = (name,)

    def __init__(
        self,
        *,
        users: UserFilter = UserFilter(fewest=500),  # noqa: B008 - frozen
        most_classes: int | None = 18,
        **kwargs: Any,
    ) -> None:
        super().__init__(users=users, most_classes=most_classes, **kwargs)

    def find(self) -> TaggedPhotos:
        return read_open_images(self.data_root(), bad_rows=self.bad_rows)

    def strangers(self, photos: TaggedPhotos) -> TaggedPhotos:
        return photos.select(np.flatnonzero(~np.isin(photos.owners, self.examples.owner_ids.numpy())))
