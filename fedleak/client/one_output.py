"""How a loss depends on a network's one output: a logit of two classes, or a regression."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fedleak.client.network import ClassifierAlgorithm, NetworkAlgorithm

_FAR = 40.0
"""Output at which a sigmoid is 0 or 1 to rounding."""
_ROUNDING = 1e-6
_SHAPES = (((-1,), (-1,)), ((-1, 1), (-1,)), ((-1, 1), (-1, 1)))
"""Shapes of outputs and targets that losses of one output take."""


@dataclass(frozen=True)
class OneOutput:
    """How a loss depends on a network's one output z and the target y: its derivative is ``response(z) - slope * y``.

    So it is for losses of generalised linear models: binary cross-entropy on a logit, where the response is the sigmoid
    and the slope one, and the squared error, where it is 2 z and the slope two.

    Attributes:
        criterion: see `NetworkAlgorithm.criterion`.
        slope: minus the second derivative by output and target.
        binary: whether the response lies between 0 and the slope, as a probability of a positive target does.
    """

    criterion: Callable[..., Tensor]
    slope: float
    binary: bool

    @classmethod
    def of(cls, algorithm: NetworkAlgorithm) -> "OneOutput | None":
        """The dependence of an algorithm's loss; None if its network has several outputs, or the loss is another."""
        layers = [layer for layer in algorithm.template.modules() if isinstance(layer, nn.Linear)]
        if not layers or layers[-1].out_features != 1 or isinstance(algorithm, ClassifierAlgorithm):
            return None
        outputs = torch.linspace(-3, 3, 13, dtype=torch.float64)
        criterion = algorithm.criterion
        try:
            at_zero = _slopes(criterion, outputs, torch.full_like(outputs, 0))
            at_half = _slopes(criterion, outputs, torch.full_like(outputs, 0.5))
            at_one = _slopes(criterion, outputs, torch.full_like(outputs, 1))
            far = _slopes(criterion, outputs.new_tensor([-_FAR, _FAR]), outputs.new_zeros(2))
        except (RuntimeError, ValueError, TypeError, IndexError):
            return None
        # The derivative must be linear in the target, with the same slope at every output.
        slope = float((at_zero - at_one).mean())
        gap_of_one = (at_zero - at_one - slope).abs().max()
        gap_of_half = (at_zero - at_half - slope / 2).abs().max()
        if slope <= 0 or not bool(gap_of_one < _ROUNDING and gap_of_half < _ROUNDING):
            return None
        # Of a probability, the response goes from 0 to the slope.
        binary = (far - far.new_tensor([0.0, slope])).abs().max() < _ROUNDING
        return cls(criterion, slope, bool(binary))

    def response(self, outputs: Tensor) -> Tensor:
        """Derivative of the loss at a target of zero, of any shape of outputs."""
        flat = outputs.detach().double().flatten()
        return _slopes(self.criterion, flat, torch.zeros_like(flat)).reshape(outputs.shape)


def _slopes(criterion: Callable[..., Tensor], outputs: Tensor, targets: Tensor) -> Tensor:
    """``(N,)`` derivatives of a loss by outputs ``(N,)``, which it takes as ``(N,)`` or ``(N, 1)``."""
    error: Exception | None = None
    for output_shape, target_shape in _SHAPES:
        with torch.enable_grad():
            points = outputs.detach().clone().requires_grad_()
            try:
                losses = criterion(points.reshape(output_shape), targets.reshape(target_shape), reduction="none")
            except (RuntimeError, ValueError, TypeError, IndexError) as raised:
                error = raised
                continue
            if losses.numel() == len(points):  # others compare each output with each target
                (slopes,) = torch.autograd.grad(losses.sum(), points)
                return slopes
    raise ValueError("no loss of one output") from error
