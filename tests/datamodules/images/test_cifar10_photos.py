"""Users who vote on CIFAR-10's photographs: those that no client of the training of a network has."""

import copy
from pathlib import Path

import torch

from fedleak.client.feature_extractor import Crop
from fedleak.datamodules.images.cifar10 import CIFAR10
from fedleak.datamodules.images.cifar10_photos import CIFAR10Photos
from fedleak.datamodules.partition.client_split import ClientSplit
from tests.datamodules import image_trees


def written(folder: Path) -> Path:
    tree = image_trees.class_tree(tuple(CIFAR10.class_names), (3, 32, 32), per_class=16)
    image_trees.write_tree(folder / "cifar10", tree)
    return folder


def test_what_is_shown_is_what_no_client_has(tmp_path: Path) -> None:
    root = str(written(tmp_path))
    data = CIFAR10Photos(root=root, per_class=3, users=4)
    photos = data.photos
    assert (len(photos), photos.classes, data.numbers) == (30, 10, list(range(30)))
    shown = photos.pixels(data.numbers, Crop(32, 32))
    trained = CIFAR10(root=root, auxiliary_per_class=3, split=ClientSplit(clients=2))
    clients = torch.cat(trained.client_images())
    own = trained._train.images[clients]
    assert len(own) == 130
    assert not (shown[:, None] == own[None]).flatten(2).all(2).any()
    held_back = trained.auxiliary()
    for image, label in zip(shown, photos.labels(data.numbers), strict=True):
        places = (held_back["image"] * 255).round().to(torch.uint8).eq(image).flatten(1).all(1)
        assert int(label) in held_back["label"][places]
    again = copy.deepcopy(photos)
    assert again.fingerprint == photos.fingerprint == data.fingerprint
    assert data.fingerprint["name"] == "cifar10"


def test_neighbouring_numbers_are_not_of_one_class(tmp_path: Path) -> None:
    photos = CIFAR10Photos(root=str(written(tmp_path)), per_class=3).photos
    labels = photos.labels(range(30))
    assert labels.bincount().tolist() == [3] * 10
    assert int((labels[1:] == labels[:-1]).sum()) < 10
