"""Images that are sent as files of eight bits: made once, by any number of processes, from where it stopped."""

import io
from pathlib import Path

import pytest
import torch
from PIL import Image
from torch import Tensor
from torchvision.transforms.functional import pil_to_tensor

from fedleak.client.feature_extractor import Crop, FeatureExtractor
from fedleak.core.errors import InputError
from fedleak.datamodules.images.image_set import GeneratedImages, StoredImages
from fedleak.modules.image_features.feature_extractors import Extractor
from fedleak.modules.image_features.gallery import Gallery, as_bytes, halved_to_memory
from fedleak.server.feature_noise import FeatureNoise, PixelSearch
from tests.extractor_toys import toy
from tests.two_ranks import TwoRanks

CPU = torch.device("cpu")
RECIPE = FeatureNoise(scale=0.5, search=PixelSearch(steps=5, learning_rate=0.05))


class ToyExtractor(Extractor):
    def build(self) -> FeatureExtractor:
        return toy()


def gallery(
    folder: Path, *, batch_size: int = 4, images: int = 6, manipulation: FeatureNoise | None = RECIPE
) -> Gallery:
    return Gallery(
        photos=GeneratedImages(count=images, size=24),
        numbers=list(range(images)),
        extractor=ToyExtractor(),
        manipulation=manipulation,
        partitions=2,
        seed=0,
        folder=folder,
        batch_size=batch_size,
        progress=False,
    )


def stored(made: Gallery) -> StoredImages:
    assert isinstance(made.sent, StoredImages)
    return made.sent


def test_what_is_sent_is_eight_bits_and_goes_on_where_it_stopped(tmp_path: Path) -> None:
    first = gallery(tmp_path)
    after = first.features(CPU)
    whole = {number: stored(first).path(number).read_bytes() for number in first.numbers}
    stored(first).path(3).unlink()
    (features,) = tmp_path.rglob("features.safetensors")
    features.unlink()
    untouched = stored(first).path(2).stat().st_mtime_ns
    again = gallery(tmp_path, batch_size=1)
    again.features(CPU)
    assert stored(again).path(2).stat().st_mtime_ns == untouched
    assert len(stored(again)) == 6
    difference = stored(again).pixels([3], Crop(16, 16)).int() - decoded(whole[3]).int()
    assert int(difference.abs().max()) <= 1  # another batch, other rounding
    assert max(stored(again).round_trip(number) for number in again.numbers) < 1e-3
    aims = again.targets()
    assert aims is not None
    assert float((after - aims).square().mean()) < float((again.original_features(CPU) - aims).square().mean())


def decoded(content: bytes) -> Tensor:
    image: Tensor = pil_to_tensor(Image.open(io.BytesIO(content)))
    return image[None]


def test_features_are_extracted_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = gallery(tmp_path).features(CPU)
    monkeypatch.setattr(FeatureExtractor, "forward", None)
    assert torch.equal(gallery(tmp_path).features(CPU), found)
    with pytest.raises(TypeError, match="not callable"):
        gallery(tmp_path, manipulation=FeatureNoise(scale=0.6, search=RECIPE.search)).features(CPU)


def test_two_ranks_make_the_images_and_features_of_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    alone = gallery(tmp_path / "one", batch_size=2, images=7)
    expected = alone.features(CPU)
    ranks, made = TwoRanks(monkeypatch), [gallery(tmp_path / "two", batch_size=2, images=7) for _ in range(2)]
    shares = [[list(places) for places in made[0]._share(rank, 2, "x")] for rank in range(2)]
    assert shares == [[[0, 1], [4, 5]], [[2, 3], [6]]]
    for found in ranks.run(lambda rank: made[rank].features(CPU, ranks.trainer(rank))):
        assert torch.equal(found, expected)
    for number in range(7):
        assert stored(made[0]).path(number).read_bytes() == stored(alone).path(number).read_bytes()


def test_items_are_drawn_evenly_of_the_parts(tmp_path: Path) -> None:
    made = gallery(tmp_path, images=40)
    drawn = made.draw(11, torch.Generator().manual_seed(0))
    part = torch.tensor(made.numbers)[drawn] % 2
    assert part.tolist() == [0] * 5 + [1] * 6
    assert len(set(drawn.tolist())) == 11
    with pytest.raises(InputError, match="50 items"):
        made.draw(50, torch.Generator())


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match=r"tmp.*file.*FEDLEAK_CACHE"):
        gallery(tmp_path / "file").features(CPU)


def test_a_batch_that_memory_does_not_hold_is_halved() -> None:
    sizes: list[int] = []

    def work(some: Tensor, _: Tensor) -> Tensor:
        sizes.append(len(some))
        if len(some) > 2:
            raise torch.OutOfMemoryError("full")
        return some + 1

    numbers = torch.arange(7.0)[:, None]
    assert torch.equal(halved_to_memory(work, numbers, numbers), numbers + 1)
    assert max(sizes) == 7

    def never(some: Tensor, _: Tensor) -> Tensor:
        raise torch.OutOfMemoryError("full")

    with pytest.raises(torch.OutOfMemoryError):
        halved_to_memory(never, numbers, numbers)


def test_bytes_are_rounded_and_clamped() -> None:
    assert as_bytes(torch.tensor([-0.1, 0.0, 0.5, 1.0, 1.2])).tolist() == [0, 0, 128, 255, 255]
