"""A convolutional network before its first linear layer, and from it on, with smooth activations."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional

from fedleak.client.engine.fast.manual_backward import Chain, chain_of
from fedleak.client.network import ClassifierAlgorithm
from fedleak.core.errors import ViewError
from fedleak.core.view import RoundView


@dataclass(frozen=True)
class NetworkHalves:
    """A network before its first linear layer, and from it on.

    Attributes:
        front: layers before the first linear layer.
        back: that layer and those after it.
        algorithm: the clients' algorithm.
    """

    front: Chain
    back: Chain
    algorithm: ClassifierAlgorithm

    @classmethod
    def of(cls, view: RoundView) -> Self:
        """The halves of the clients' network.

        Raises:
            ViewError: it is no chain of known layers with a linear one after convolutions, or that one has no bias.
        """
        algorithm = view.require(ClassifierAlgorithm)
        chain = chain_of(algorithm.template) or []
        first_linear = 0
        for number, (_, layer) in enumerate(chain):
            if isinstance(layer, nn.Linear):
                first_linear = number
                break
        front = chain[:first_linear]
        back = chain[first_linear:]
        if not any(isinstance(layer, nn.Conv2d) for _, layer in front):
            layers = [type(layer).__name__ for _, layer in chain] or "another network"
            raise ViewError(
                "expected a chain of convolutions, ReLU, max-poolings and then linear layers, whose first one gets the"
                f" features of each image; got {layers}"
            )
        for _, layer in front:
            if isinstance(layer, nn.MaxPool2d) and not _is_plain(layer):
                raise ViewError(
                    "expected max-poolings without padding and dilation, which the attack makes smooth; got others"
                )
        halves = cls(front, back, algorithm)
        needed = [f"{halves.linear}.weight", f"{halves.linear}.bias", *halves.front_parameters]
        missing = [name for name in needed if name not in view.deltas]
        if missing:
            raise ViewError(f"expected the updates of {', '.join(needed)}; got none of {', '.join(missing)}")
        return halves

    @property
    def linear(self) -> str:
        """Name of the first linear layer."""
        return self.back[0][0]

    @property
    def front_parameters(self) -> list[str]:
        """Names of the parameters before it."""
        names = []
        for name, layer in self.front:
            names += [f"{name}.{part}" for part, _ in layer.named_parameters()]
        return names

    def features(self, model: Mapping[str, Tensor], images: Tensor, width: float) -> Tensor:
        """Inputs ``(M, D)`` of the first linear layer, with activations of a width in deviations of their inputs."""
        for name, layer in self.front:
            # A width in the units of the layer's inputs; no gradient flows through it.
            scale = width * images.detach().std().clamp(min=1e-12)
            if isinstance(layer, nn.ReLU):
                images = scale * functional.softplus(images / scale)
            elif isinstance(layer, nn.MaxPool2d):
                images = _smooth_maximum(images, layer, scale)
            else:
                images = _called(name, layer, model, images)
        return images

    def errors(self, model: Mapping[str, Tensor], inputs: Tensor) -> Tensor:
        """``(M, K, N)`` gradients of the loss by the outputs of the first linear layer, by class."""
        (name, linear), *later_layers = self.back
        outputs = _called(name, linear, model, inputs).detach()
        classes = model[f"{self.algorithm.output_layer}.bias"].shape[0]
        with torch.enable_grad():
            # Each example once for each class, as a leaf whose gradient is the error.
            repeated = outputs.repeat_interleave(classes, 0).requires_grad_()
            logits = repeated
            for layer_name, layer in later_layers:
                logits = _called(layer_name, layer, model, logits)
            labels = torch.arange(classes).repeat(len(inputs))
            loss = self.algorithm.criterion(logits, labels, reduction="sum")
            (errors,) = torch.autograd.grad(loss, repeated)
        return errors.reshape(len(inputs), classes, -1)


def _is_plain(pool: nn.MaxPool2d) -> bool:
    """Whether the windows of a pooling are all inside the image and without gaps."""
    return pool.padding in (0, (0, 0)) and pool.dilation in (1, (1, 1)) and not pool.ceil_mode


def _called(name: str, layer: nn.Module, model: Mapping[str, Tensor], inputs: Tensor) -> Tensor:
    """Outputs of one layer with the model's parameters."""
    parameters = {part: model[f"{name}.{part}"] for part, _ in layer.named_parameters()}
    outputs: Tensor = functional_call(layer, parameters, (inputs,))
    return outputs


def _smooth_maximum(images: Tensor, pool: nn.MaxPool2d, scale: Tensor) -> Tensor:
    """``s log sum exp(x / s)`` of each window of ``images (M, C, height, width)``."""
    count, channels = images.shape[:2]
    height, width = pool(images.detach()).shape[2:]
    # (M * C, window, places)
    windows = functional.unfold(images.flatten(0, 1)[:, None], pool.kernel_size, stride=pool.stride)
    return (scale * torch.logsumexp(windows / scale, dim=1)).reshape(count, channels, height, width)
