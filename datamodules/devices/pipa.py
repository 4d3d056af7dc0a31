"""PIPA (Zhang 2015): people's photo albums from Flickr, with what a detector sees in them."""

from typing import Any

from datamodules.devices.photos import PhotoDataModule
from datamodules.devices.pipa_files import FOLDER, read_pipa
from datamodules.devices.tagged_photos import TaggedPhotos
from datamodules.devices.user_filter import UserFilter
from protocol.errors import InputError


class PIPA(PhotoDataModule):
    """Photographs by Flickr author; the paper has 33,051 of 53 authors, with 19 labels of COCO that it does not list.

    Reads ``root/pipa/``, see `read_pipa`. The photographs have no dates, so there is no prior ``chrono``, but
    ``photoset``. The background is OpenImages. The other arguments are those of `PhotoDataModule`.

    Args:
        users: see `OwnedDataModule`; the paper's have at least 100 images.
        least_share: see `PhotoDataModule`; the paper's labels are in about 1 % of the images or more.
        least_score: from which a detection counts.
    """

    name = FOLDER
    folders = (name,)

    def __init__(
        self,
        *,
        users: UserFilter = UserFilter(fewest=100),  # noqa: B008 - frozen
        least_share: float = 0.01,
        least_score: float = 0.5,
        **kwargs: Any,
    ) -> None:
        super().__init__(users=users, least_share=least_share, **kwargs)
        if not 0 <= least_score <= 1:
            raise InputError(expected="least_score from 0 to 1", found=str(least_score), way_out="0.5 is a usual one.")
        self.least_score = least_score

    def find(self) -> TaggedPhotos:
        return read_pipa(self.data_root(), least_score=self.least_score, bad_rows=self.bad_rows)

    def strangers(self, photos: TaggedPhotos) -> TaggedPhotos:
        """See `PhotoDataModule.strangers`: OpenImages' authors are taken to be other people."""
        return photos
