"""Photographs with owners: the official layouts in small, their labels and photosets, and what can be missing."""

import datetime
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from fedleak.core.errors import InputError
from fedleak.datamodules.devices.device_split import Devices
from fedleak.datamodules.devices.open_images import OpenImages, read_open_images
from fedleak.datamodules.devices.photos import frequent_tags, tag_table
from fedleak.datamodules.devices.pipa import PIPA, read_annotations, read_pipa
from fedleak.datamodules.devices.profiles import Profile
from fedleak.datamodules.devices.user_filter import UserFilter
from tests.datamodules.owned_files import write_open_images, write_pipa
from tests.datamodules.refusals import refused
from tests.places import REAL

FEW = UserFilter(fewest=3)


def open_images(root: Path, *, users: UserFilter = FEW, **arguments: Any) -> OpenImages:
    return OpenImages(root=str(root), users=users, image_size=(6, 8), **arguments)


def pipa(root: Path, *, image_size: tuple[int, int] = (6, 8), **arguments: Any) -> PIPA:
    return PIPA(root=str(root), users=FEW, image_size=image_size, **arguments)


def test_open_images_by_the_account_of_their_author(tmp_path: Path) -> None:
    write_open_images(tmp_path)
    data = open_images(tmp_path)
    examples = data.examples
    assert examples.owners.tolist() == [row % 3 for row in range(18)], "authors share a name, not an account"
    assert examples.features.shape == (18, 3, 6, 8)
    assert data.class_names == ("Food", "Building", "Guitar")
    expected = [[row < 17, row < 17 and row % 2 == 1, row < 17 and row % 3 == 0] for row in range(18)]
    assert examples.labels.tolist() == expected
    assert examples.dropped.undated == 18
    assert open_images(tmp_path, most_classes=1).num_classes == 1
    assert open_images(tmp_path, classes=["Guitar"]).examples.labels.sum() == 6


def test_open_images_are_found_in_zip_files_too(tmp_path: Path) -> None:
    folder = write_open_images(tmp_path)
    plain = open_images(tmp_path).fingerprint
    with zipfile.ZipFile(folder / "train.zip", "w") as file:
        for path in sorted((folder / "train").iterdir()):
            file.write(path, f"train/{path.name}")
            path.unlink()
    assert open_images(tmp_path).fingerprint == plain


def test_dates_of_open_images_come_from_a_file_of_their_own(tmp_path: Path) -> None:
    folder = write_open_images(tmp_path, dates=True)
    data = open_images(tmp_path, devices=Devices(prior="chrono"))
    assert data.examples.days[:2].tolist() == [datetime.date(2008, 5, day).toordinal() for day in (1, 2)]
    for anonymous, known in zip(data.device_split.anonymous, data.device_split.known, strict=True):
        assert data.examples.days[known].max() < data.examples.days[anonymous].min()
    (folder / "dates.csv").unlink()
    refused(open_images(tmp_path, devices=Devices(prior="chrono")), "18 of 18 undated")


def test_the_background_of_open_images_are_other_authors(tmp_path: Path) -> None:
    write_open_images(tmp_path)
    data = open_images(tmp_path, users=UserFilter(fewest=3, most_users=2))
    assert data.examples.owner_ids.tolist() == [0, 1]
    assert len(data.background.features) == 6
    pixels = data.examples.features.flatten(1).float()
    assert torch.cdist(data.background.features.flatten(1).float(), pixels).min() > 0
    assert data.background.labels.shape == (6, 3)


def test_pipa_by_flickr_author_with_its_photosets(tmp_path: Path) -> None:
    write_pipa(tmp_path)
    data = pipa(tmp_path)
    examples = data.examples
    assert examples.counts().tolist() == [12, 11], "the last photograph has no file"
    assert examples.groups.tolist() == [row // 4 for row in range(23)]
    assert data.class_names == ("food", "chair")
    assert examples.labels.tolist() == [[True, row % 2 == 1] for row in range(23)]
    assert pipa(tmp_path, least_score=0.2).examples.labels.all()
    assert pipa(tmp_path, least_share=0.9).class_names == ("food",)


def test_photosets_are_dealt_whole_and_photographs_are_clients(tmp_path: Path) -> None:
    write_pipa(tmp_path, photosets=5)
    data = pipa(tmp_path, devices=Devices(prior="photoset"))
    split = data.device_split
    owned = [set(data.examples.groups[part].tolist()) for part in (*split.anonymous, *split.known, *split.test)]
    assert len(set.union(*owned)) == sum(map(len, owned)) == 10
    cohort = data.cohort(0)
    part = data.client_examples()[0]
    assert torch.equal(cohort.examples["image"][0][cohort.mask[0]], data.examples.features[part].float() / 255)
    assert torch.equal(cohort.examples["label"][0][cohort.mask[0]], data.examples.labels[part])
    assert cohort.examples["label"].dtype == torch.bool


def test_one_photoset_cannot_be_dealt_out(tmp_path: Path) -> None:
    write_pipa(tmp_path, photosets=1)
    refused(pipa(tmp_path, devices=Devices(prior="photoset")), "photosets")


def test_the_background_of_pipa_are_open_images_with_the_same_labels(tmp_path: Path) -> None:
    write_pipa(tmp_path)
    write_open_images(tmp_path)
    background = pipa(tmp_path).background
    assert background.features.shape == (18, 3, 6, 8)
    assert background.labels.tolist() == [[row < 17, False] for row in range(18)]


def test_a_profile_of_labels(tmp_path: Path) -> None:
    write_open_images(tmp_path)
    devices = Devices(prior="profile", profiles=[Profile(name="meals", terms=["Food"])])
    few = UserFilter(fewest=3, most_users=2)
    data = open_images(tmp_path, devices=devices, users=few)
    assert data.background.labels[data.device_split.known[0] - len(data.examples), 0].all()
    unknown = Devices(prior="profile", profiles=[Profile(name="guns", terms=["Handgun"])])
    refused(open_images(tmp_path, devices=unknown, users=few), r"Food, Building, Guitar.*Handgun")


def test_labels_are_counted_as_a_loop_would() -> None:
    tags = [frozenset("ab"), frozenset("bc"), frozenset(), frozenset("bad")]
    assert frequent_tags(tags, most=None, least_share=0.0) == ("b", "a", "c", "d")
    assert frequent_tags(tags, most=None, least_share=0.5) == ("b", "a")
    assert frequent_tags(tags, most=1, least_share=0.0) == ("b",)
    names = ("d", "b")
    assert tag_table(tags, names).tolist() == [[name in own for name in names] for own in tags]


@pytest.mark.parametrize(
    ("missing", "found"),
    [
        ("train", "images in .*none.*storage.googleapis.com"),
        ("train-images-boxable-with-rotation.csv", r"information on images.*\*rotation\*\.csv"),
        ("train-annotations-human-imagelabels.csv", r"image-level labels as \*imagelabels\*\.csv"),
        ("class-descriptions.csv", "names of labels"),
    ],
)
def test_what_open_images_lacks_is_named(tmp_path: Path, missing: str, found: str) -> None:
    path = write_open_images(tmp_path) / missing
    path.rename(tmp_path / "elsewhere")
    with pytest.raises(InputError, match=found):
        read_open_images(tmp_path, bad_rows="error")


def test_broken_rows_of_open_images_are_counted(tmp_path: Path) -> None:
    path = write_open_images(tmp_path) / "train-annotations-human-imagelabels.csv"
    path.write_text(path.read_text() + "xyz,verification,/m/0c4,1\n0000000000000001,verification\n")
    refused(open_images(tmp_path), r"2 unparsable rows .*in lines 53, 54\. ")
    dropped = open_images(tmp_path, bad_rows="drop").examples.dropped
    assert (dropped.unparsable, dropped.lines) == (2, (53, 54))


def _without(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink()


def _with_line(line: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        path = folder / "all_data.txt"
        path.write_text(path.read_text() + line + "\n")

    return change


def _renamed_photos(folder: Path) -> None:
    for path in folder.glob("*/*.jpg"):
        path.rename(path.with_name(f"x{path.name}"))


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (_without("all_data.txt"), r"all_data\.txt"),
        (_without("authors.csv"), r"authors\.csv with the columns photo_id, author.*Flickr"),
        (_without("labels.csv"), r"labels\.csv with the columns photo_id, label, score.*detector"),
        (_with_line("1 2 3"), "line 49"),
        (_with_line("1 2 3 4 5 6 7 9"), "a subset from 0 to 3.*'9' in line 49"),
        (_with_line("1 x 3 4 5 6 7 1"), "'x' in line 49"),
        (_renamed_photos, r"23 image files, 24 authors, none in common.*PHOTOSET_PHOTO\.jpg"),
    ],
    ids=["list", "authors", "labels", "fields", "subset", "number", "photos"],
)
def test_what_pipa_lacks_or_breaks_is_named(tmp_path: Path, change: Callable[[Path], None], found: str) -> None:
    change(write_pipa(tmp_path))
    with pytest.raises(InputError, match=found):
        read_pipa(tmp_path, least_score=0.5, bad_rows="error")


def test_impossible_options_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="least_score"):
        pipa(tmp_path, least_score=2.0)
    with pytest.raises(InputError, match="image_size"):
        pipa(tmp_path, image_size=(0, 8))
    write_pipa(tmp_path)
    with pytest.raises(InputError, match="frequent"):
        pipa(tmp_path, least_share=1.1).examples  # noqa: B018


@pytest.mark.integration
@pytest.mark.skipif(not (REAL / "pipa").is_dir(), reason="the real data are not here")
def test_the_real_annotations_have_their_published_sizes() -> None:
    photosets = read_annotations(REAL / "pipa" / "all_data.txt")
    assert (len(photosets), len(set(photosets.values()))) == (37_107, 1_438)
    refused(PIPA(root=str(REAL)), r"authors\.csv")
