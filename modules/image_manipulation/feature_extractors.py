"""Feature extractors by name: any classification network of timm or torchvision."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torchvision import models as torchvision_models

from datamodules.images.image_set import Crop, GeneratedImages
from modules.image_manipulation.feature_extractor import FeatureExtractor, Transform
from protocol.errors import InputError, require
from protocol.ranges import PositiveInt

_PUBLISHED = {
    "resnet18": "IMAGENET1K_V1",
    "regnet_y_800mf": "IMAGENET1K_V2",
    "densenet121": "IMAGENET1K_V1",
    "mnasnet1_3": "IMAGENET1K_V1",
}
"""Weights of the networks in RAIFLE's table IV."""
_SETTLED_ON = 32
"""Number of generated images for the statistics of batch normalisation."""


@dataclass(frozen=True, kw_only=True)
class Extractor:
    """Options of the public network whose features clients rank images by.

    Attributes:
        name: network, ``torchvision:NAME`` or ``timm:NAME``; without a prefix, torchvision's if there is one.
        weights: ``pretrained``, ``random``, a file of weights, or a folder with NAME.safetensors or NAME.pth.
        features: number of features after averaging neighbours, None for all.
        crop: height and width of an image, None for the network's own.
    """

    name: str = "resnet18"
    weights: str = "pretrained"
    features: PositiveInt | None = None
    crop: PositiveInt | None = None

    def build(self) -> FeatureExtractor:
        """The feature extractor."""
        crop = None if self.crop is None else Crop(self.crop, self.crop)
        return extractor(self.name, weights=self._file, features=self.features, crop=crop)

    @property
    def fingerprint(self) -> str:
        """Key of everything that the features depend on: options, version of torch, and file of the weights."""
        file = Path(self._file)
        changed = file.stat().st_mtime_ns if file.is_file() else None
        return f"{self} {torch.__version__} {changed}"

    @property
    def _file(self) -> str:
        """File of the weights if `weights` is a folder, otherwise `weights`."""
        folder = Path(self.weights)
        if self.weights in ("pretrained", "random") or not folder.is_dir():
            return self.weights
        plain = self.name.rpartition(":")[2]
        found = [path for suffix in ("safetensors", "pth") if (path := folder / f"{plain}.{suffix}").is_file()]
        return str(found[0] if found else folder / f"{plain}.safetensors")


def extractor(
    name: str,
    *,
    weights: str = "pretrained",
    features: int | None = None,
    crop: Crop | None = None,
    seed: int = 0,
) -> FeatureExtractor:
    """Feature extractor by name.

    Args:
        name: network, ``torchvision:NAME`` or ``timm:NAME``; without a prefix, torchvision's if there is one.
        weights: ``pretrained``, ``random``, or a file of weights (safetensors or torch's format). With random weights,
            batch normalisation gets the statistics of generated images; without them deep features hardly vary.
        features: number of features after averaging neighbours, None for all.
        crop: resizing and crop, None for the network's own.
        seed: seed of random weights.

    Raises:
        InputError: there is no such network, or its weights are unavailable or belong to another network.
    """
    library, _, plain = name.rpartition(":")
    if library not in ("", "torchvision", "timm"):
        raise _unknown(name)
    pretrained = weights == "pretrained"
    if library == "torchvision" or (not library and plain in torchvision_models.list_models()):
        network, transform = _from_torchvision(plain, pretrained=pretrained, seed=seed)
    else:
        network, transform = _from_timm(plain, pretrained=pretrained, seed=seed)
    if weights not in ("pretrained", "random"):
        _load(network, Path(weights), name)
    chosen = transform if crop is None else Transform(crop, transform.mean, transform.std)
    made = FeatureExtractor(network, transform=chosen, features=features, name=name)
    if weights == "random":
        _settle_statistics(made, seed)
    return made


def _settle_statistics(made: FeatureExtractor, seed: int) -> None:
    """Sets the statistics of batch normalisation to those of generated images."""
    layers = [layer for layer in made.modules() if isinstance(layer, nn.BatchNorm2d)]
    if not layers:
        return
    crop = made.transform.crop
    images = GeneratedImages(count=_SETTLED_ON, size=crop.size, seed=seed).pixels(range(_SETTLED_ON), crop)
    for layer in layers:
        layer.reset_running_stats()
        layer.momentum = None  # cumulative mean
        layer.train()
    with torch.no_grad():
        made(images / 255)
    for layer in layers:
        layer.eval()


def _from_torchvision(name: str, *, pretrained: bool, seed: int) -> tuple[nn.Module, Transform]:
    if name not in torchvision_models.list_models():
        raise _unknown(f"torchvision:{name}")
    published = _PUBLISHED.get(name, "DEFAULT")
    try:
        preset: Any = torchvision_models.get_model_weights(name)[published].transforms()
        crop = Crop(preset.resize_size[0], preset.crop_size[0], "bicubic" in str(preset.interpolation))
        transform = Transform(crop, tuple(preset.mean), tuple(preset.std))
    except (KeyError, AttributeError):
        transform = Transform(Crop())
    if pretrained:
        return _fetched(lambda: torchvision_models.get_model(name, weights=published), name), transform
    return _seeded(lambda: torchvision_models.get_model(name, weights=None), seed), transform


def _from_timm(name: str, *, pretrained: bool, seed: int) -> tuple[nn.Module, Transform]:
    import timm  # takes seconds, and few trainings need it

    architecture, _, tag = name.partition(".")
    if not timm.is_model(architecture) or (tag and name not in timm.list_pretrained(f"{architecture}.*")):
        raise _unknown(name)
    if pretrained:
        network = _fetched(lambda: timm.create_model(name, pretrained=True), name)
    else:
        network = _seeded(lambda: timm.create_model(name, pretrained=False), seed)
    config = timm.data.resolve_model_data_config(network)
    size = int(config["input_size"][-1])
    crop = Crop(max(size, int(size / config["crop_pct"])), size, config["interpolation"] == "bicubic")
    return network, Transform(crop, tuple(config["mean"]), tuple(config["std"]))


def _seeded(make: Callable[[], nn.Module], seed: int) -> nn.Module:
    """Network with random weights; the state of the global generator, which the libraries use, is restored."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return make()


def _fetched(make: Callable[[], nn.Module], name: str) -> nn.Module:
    try:
        return make()
    except (OSError, RuntimeError, ValueError) as error:
        raise InputError(
            expected=f"the published weights of {name}",
            found=str(error).strip().split("\n")[0].rstrip(".") or type(error).__name__,
            way_out="Set `weights` to a file of them, or to `random`.",
        ) from error


def _load(network: nn.Module, path: Path, name: str) -> None:
    way_out = f"Save the weights of {name} there."
    require(path.is_file(), "weights: pretrained, random or a file", f"nothing at {path}", way_out)
    try:
        # Tensors only, so that an untrusted file runs no code.
        from timm.models import load_state_dict

        network.load_state_dict(load_state_dict(str(path), weights_only=True))
    except Exception as error:  # the type depends on the library that reads the file
        raise InputError(
            expected=f"the weights of {name}",
            found=f"{' '.join(str(error).split())[:200]} in {path}",
            way_out="Set `weights` to a complete file of the same network.",
        ) from error


def _unknown(name: str) -> InputError:
    return InputError(
        expected="a network of torchvision or timm",
        found=name,
        way_out="torchvision.models.list_models() and timm.list_models() list the names.",
    )
