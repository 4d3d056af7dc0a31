"""Images by class, in folders or a zip file: cached, and refused with a name where they are damaged."""

from pathlib import Path

import numpy as np
import pytest
import torch

from fedleak.datamodules.images import image_files
from fedleak.datamodules.images.fer import FER
from tests.datamodules import image_trees as trees
from tests.datamodules.refusals import refused


def write(root: Path, form: str, tree: dict[str, bytes]) -> None:
    if form == "zip":
        trees.write_zip(root / "fer2013" / "archive.zip", tree)
    else:
        trees.write_tree(root / "fer2013", tree)
        (root / "fer2013" / "train" / "fear" / "notes.txt").write_text("no image")


@pytest.mark.parametrize("form", ["folders", "zip"])
def test_images_by_class_are_read_from_folders_or_a_zip_file(tmp_path: Path, form: str) -> None:
    write(tmp_path, form, trees.fer_tree())
    train, test = FER(root=str(tmp_path)).read_train(), FER(root=str(tmp_path)).read_test()
    assert train.labels.tolist() == [number for number in range(7) for _ in range(8)]
    assert test.labels.bincount().tolist() == [2] * 7
    # JPEG at its best quality, noise at its worst: off by a level or two.
    original = np.concatenate([trees.noise(8, 1, 48, 48, seed=number) for number in range(7)])
    assert np.abs(train.images.numpy().astype(int) - original).max() <= 4


def test_decoded_images_come_from_the_cache_and_a_change_is_noticed(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trees.write_tree(tmp_path / "fer2013", trees.fer_tree())
    fresh = FER(root=str(tmp_path)).read_train()
    with monkeypatch.context() as patch:
        patch.setattr(image_files, "_decode", None)
        assert torch.equal(FER(root=str(tmp_path)).read_train().images, fresh.images)
    changed = trees.noise(1, 1, 48, 48, seed=9)[0]
    (tmp_path / "fer2013" / "train" / "fear" / "0003.jpg").write_bytes(trees.jpeg(changed))
    again = FER(root=str(tmp_path)).read_train().images
    assert (again != fresh.images).flatten(1).any(1).nonzero().flatten().tolist() == [2 * 8 + 3]
    assert np.abs(again[19].numpy().astype(int) - changed).max() <= 4
    for kept in cache.iterdir():
        kept.write_bytes(kept.read_bytes()[:300])
    assert torch.equal(FER(root=str(tmp_path)).read_train().images, again)


@pytest.mark.parametrize("damage", ["cut short", "empty", "no image", "too large"])
@pytest.mark.parametrize("form", ["folders", "zip"])
def test_a_damaged_image_is_named(tmp_path: Path, damage: str, form: str) -> None:
    tree = trees.fer_tree()
    name = "train/happy/0005.jpg"
    tree[name] = {
        "cut short": tree[name][:400],
        "empty": b"",
        "no image": b"no image at all",
        "too large": trees.jpeg(trees.noise(1, 1, 48, 50)[0]),
    }[damage]
    write(tmp_path, form, tree)
    refused(FER(root=str(tmp_path)), name)


def test_a_damaged_zip_file_or_a_missing_class_is_named(tmp_path: Path) -> None:
    path = tmp_path / "fer2013" / "archive.zip"
    trees.write_zip(path, trees.fer_tree())
    whole = path.read_bytes()
    path.write_bytes(whole[:-100])
    refused(FER(root=str(tmp_path)), "zip file")
    # One byte of one image: the zip file's own checksum tells.
    path.write_bytes(whole[:500] + bytes([whole[500] ^ 1]) + whole[501:])
    refused(FER(root=str(tmp_path)), r"train/angry/0000\.jpg")
    tree = {name: content for name, content in trees.fer_tree().items() if "disgust" not in name}
    trees.write_zip(path, tree)
    refused(FER(root=str(tmp_path)), "disgust")
