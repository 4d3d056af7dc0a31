"""ImageNet in its layouts, what is cut out of an image, and images that are damaged or of another kind."""

import io
import tarfile
from pathlib import Path

import numpy as np
import pytest
import scipy.io
import torch
from PIL import Image
from torch import nn
from torchvision.datasets import imagenet as torchvision_imagenet
from torchvision.datasets.utils import calculate_md5
from torchvision.transforms import InterpolationMode
from torchvision.transforms._presets import ImageClassification

from fedleak.client.feature_extractor import Crop, FeatureExtractor, Transform
from fedleak.core.errors import InputError
from fedleak.datamodules.images.image_set import GeneratedImages, StoredImages
from fedleak.datamodules.images.imagenet import ValidationImages
from tests.datamodules import image_trees as trees
from tests.places import REAL

SYNSETS = ("n01440764", "n01443537", "n01484850")


def tree() -> dict[str, bytes]:
    """Two images of each of three synsets, of different shapes."""
    images = {f"val/{synset}/{row}.JPEG": (synset, row) for synset in SYNSETS for row in range(2)}
    return {
        path: trees.jpeg(trees.noise(1, 3, 30 + row, 40, seed=SYNSETS.index(synset))[0])
        for path, (synset, row) in images.items()
    }


def saved(image: Image.Image, kind: str) -> bytes:
    content = io.BytesIO()
    image.save(content, kind)
    return content.getvalue()


def test_a_folder_and_a_zip_file_are_read_alike(tmp_path: Path) -> None:
    trees.write_tree(tmp_path / "a/imagenet", tree())
    trees.write_zip(tmp_path / "b/imagenet/imagenet_val_sample.zip", tree())
    folder, zipped = (ValidationImages(root=str(tmp_path / name)) for name in "ab")
    crop = Crop(16, 12)
    assert len(folder) == len(zipped) == 6
    assert folder.fingerprint == zipped.fingerprint
    assert torch.equal(folder.pixels(range(6), crop), zipped.pixels(range(6), crop))
    assert folder.pixels([1], crop).shape == (1, 3, 12, 12)


def archive(folder: Path) -> None:
    """ILSVRC-2012's archive and development kit with three synsets and six images."""
    folder.mkdir(parents=True)
    kinds = [(number + 1, synset, f"thing {number}, other", "gloss", 0) for number, synset in enumerate(SYNSETS)]
    fields = [("ILSVRC2012_ID", "O"), ("WNID", "O"), ("words", "O"), ("gloss", "O"), ("num_children", "O")]
    meta = io.BytesIO()
    scipy.io.savemat(meta, {"synsets": np.array(kinds, dtype=fields)})  # type: ignore[arg-type]
    truth = "\n".join(str(number % 3 + 1) for number in range(6))
    kit = {"data/meta.mat": meta.getvalue(), "data/ILSVRC2012_validation_ground_truth.txt": truth.encode()}
    with tarfile.open(folder / "ILSVRC2012_devkit_t12.tar.gz", "w:gz") as file:
        for name, content in kit.items():
            put(file, f"ILSVRC2012_devkit_t12/{name}", content)
    with tarfile.open(folder / "ILSVRC2012_img_val.tar", "w") as file:
        for number in range(6):
            image = trees.jpeg(trees.noise(1, 3, 20, 20, seed=number)[0])
            put(file, f"ILSVRC2012_val_{number + 1:08}.JPEG", image)


def put(file: tarfile.TarFile, name: str, content: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(content)
    file.addfile(entry, io.BytesIO(content))


def test_the_archive_is_unpacked_by_torchvision(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "imagenet"
    archive(folder)
    own = {part: (name, "") for part, (name, _) in torchvision_imagenet.ARCHIVE_META.items()}
    for part in ("val", "devkit"):
        own[part] = (own[part][0], calculate_md5(folder / own[part][0]))
    monkeypatch.setattr(torchvision_imagenet, "ARCHIVE_META", own)
    source = ValidationImages(root=str(tmp_path))
    assert len(source) == 6
    assert [path.name for path in sorted((folder / "val").iterdir())] == list(SYNSETS)
    assert (folder / "val" / SYNSETS[1] / "ILSVRC2012_val_00000002.JPEG").is_file()
    assert sorted(path.name for path in folder.iterdir() if path.is_dir()) == ["val"]


def test_another_archive_and_an_empty_folder_are_refused(tmp_path: Path) -> None:
    archive(tmp_path / "imagenet")
    with pytest.raises(InputError, match=r"ILSVRC2012_devkit_t12.tar.gz"):
        len(ValidationImages(root=str(tmp_path)))
    assert not (tmp_path / "imagenet/val").exists()
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="ILSVRC2012_img_val"):
        len(ValidationImages(root=str(tmp_path / "empty")))


@pytest.mark.parametrize("kept", [0, 40, 700])
def test_a_cut_or_foreign_image_is_named(tmp_path: Path, kept: int) -> None:
    content = tree()
    content["val/n01440764/0.JPEG"] = content["val/n01440764/0.JPEG"][:kept]
    trees.write_tree(tmp_path / "imagenet", content)
    with pytest.raises(InputError, match=r"n01440764/0.JPEG"):
        ValidationImages(root=str(tmp_path)).image(0)


def test_grey_and_cmyk_images_become_colours(tmp_path: Path) -> None:
    red = Image.new("RGB", (20, 20), (200, 30, 30))
    folder = tmp_path / "imagenet/val/n01440764"
    folder.mkdir(parents=True)
    (folder / "a.JPEG").write_bytes(saved(red.convert("CMYK"), "JPEG"))
    (folder / "b.JPEG").write_bytes(saved(red.convert("L"), "JPEG"))
    found = ValidationImages(root=str(tmp_path)).pixels([0, 1], Crop(8, 8)).float().mean((2, 3))
    assert bool(((found[0] - torch.tensor([200.0, 30.0, 30.0])).abs() < 6).all())
    assert float(found[1].std()) < 1


def test_the_cut_is_that_of_the_published_weights() -> None:
    image = Image.fromarray(trees.noise(1, 90, 70, 3)[0])
    for bicubic in (False, True):
        mode = InterpolationMode.BICUBIC if bicubic else InterpolationMode.BILINEAR
        preset = ImageClassification(crop_size=32, resize_size=40, interpolation=mode)
        network = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, 2))
        made = FeatureExtractor(network, transform=Transform(Crop(40, 32, bicubic)), name="toy")
        pixels = made.transform.crop.of(image)[None] / 255
        torch.testing.assert_close(made.normalise(pixels)[0], preset(image))
        torch.testing.assert_close(made.restore(made.normalise(pixels)), pixels)


def test_generated_images_depend_on_their_number_alone() -> None:
    crop = Crop(8, 8)
    few, many = GeneratedImages(count=2, size=16), GeneratedImages(count=9, size=16)
    assert torch.equal(few.pixels([1], crop), many.pixels([1], crop))
    assert not torch.equal(many.pixels([1], crop), many.pixels([2], crop))
    assert few.fingerprint != many.fingerprint
    assert many.first(9) == list(range(9))
    assert many.first(3) == many.first(3)
    with pytest.raises(InputError, match="10 images"):
        many.first(10)


def test_what_is_stored_comes_back_exactly(tmp_path: Path) -> None:
    stored = StoredImages(tmp_path / "made", name="x")
    image = torch.from_numpy(trees.noise(1, 3, 9, 9)[0])
    stored.write(4, image, round_trip=0.25)
    assert torch.equal(stored.pixels([4], Crop(9, 9))[0], image)
    assert stored.round_trip(4) == 0.25
    assert len(stored) == 1
    stored.path(4).write_bytes(stored.path(4).read_bytes()[:60])
    with pytest.raises(InputError, match=r"00000004.png"):
        stored.image(4)


def test_impossible_crops_are_refused() -> None:
    with pytest.raises(InputError, match="224 of 256"):
        Crop(10, 12)


@pytest.mark.integration
@pytest.mark.skipif(not (REAL / "imagenet").is_dir(), reason="the real images are not here")
def test_real_images_are_read() -> None:
    source = ValidationImages(root=str(REAL))
    assert len(source) == 64
    pixels = source.pixels(range(64), Crop(64, 56)).float() / 255
    assert pixels.shape == (64, 3, 56, 56)
    assert 0.3 < float(pixels.mean()) < 0.6
    assert bool((pixels.std((1, 2, 3)) > 0.05).all())
