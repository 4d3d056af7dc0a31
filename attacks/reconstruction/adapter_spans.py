"""Row spaces of the changes of adapters, in which the inputs of their layers lie."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fedleak.attacks.reconstruction.span import Span, span_of
from fedleak.client.adapted_layers import LayerInputs
from fedleak.client.pretrained import PretrainedAlgorithm
from fedleak.core.errors import ViewError
from fedleak.core.view import RoundView

_CLEAR = 3.0
"""Smallest singular value of a span, over the edge of noise, above which none is expected to be lost below it."""


@dataclass(frozen=True)
class InputSpan:
    """Row space of the change of adapters that read the same inputs.

    Attributes:
        layer: number of the inputs among those of `PretrainedAlgorithm.adapted_inputs`.
        span: the row space.
        spare: rows and dimensions, the fewer of them, beyond its rank: 0 if the row space may be a part of the span of
            the inputs.
        matrix: ``(r, d)`` A through which the inputs are seen where only B moved; None for the inputs themselves.
    """

    layer: int
    span: Span
    spare: int
    matrix: Tensor | None

    @property
    def clear(self) -> bool:
        """Whether all directions of the span are far above the noise, so that none is likely to be lost in it."""
        return bool(self.span.values[-1] >= _CLEAR * self.span.edge)

    def excess(self, inputs: Tensor, missed: float) -> Tensor:
        """``(N,)`` squared distance of inputs ``(N, d)`` from the row space, over what noise explains."""
        vectors = inputs.double()
        if self.matrix is not None:
            vectors = vectors @ self.matrix.double().T
        return self.span.excess(vectors, vectors.new_zeros(1, vectors.shape[1]), missed=missed)[:, 0]


def adapter_spans(
    view: RoundView,
    victim: int,
    layers: Sequence[LayerInputs],
    variances: Mapping[str, Tensor],
    drift: float,
    *,
    first: int = 1,
) -> list[InputSpan]:
    """Row spaces of the changes of all adapters but the first, which read words and no prefixes.

    Args:
        view: what the server saw.
        victim: number of the client.
        layers: what the adapted layers read, see `PretrainedAlgorithm.adapted_inputs`.
        variances: variance of the noise of each parameter's change.
        drift: relative distance of inputs that count as the same.
        first: number of the first of `layers` that read prefixes.

    Raises:
        ViewError: no such adapter is recorded.
    """

    def whitened(name: str) -> Tensor:
        """A change in units of its noise, because adapters differ much in it."""
        variance = variances[name][min(victim, len(variances[name]) - 1)]
        return view.deltas[name][victim].double() / variance.mean().sqrt()

    values = {**view.require(PretrainedAlgorithm).frozen, **view.model}
    spans = list[InputSpan]()
    for number, layer in enumerate(layers[first:], first):
        moved = [a for a, _ in layer.adapters if a in view.deltas and bool(view.deltas[a][victim].any())]
        changes = list[tuple[Tensor, Tensor | None]]()
        if moved:
            # The A of all layers that read the same inputs: their rows together are in the span of the inputs z.
            changes.append((torch.cat([whitened(a) for a in moved]), None))
        else:
            # Only B moved, as in the first step: its rows are in the span of A z, of each layer by itself.
            changes += [(whitened(b), values[a]) for a, b in layer.adapters if b in view.deltas]
        for change, matrix in changes:
            span = span_of(change, 1.0, drift=drift)
            spans.append(InputSpan(number, span, min(change.shape) - span.rank, matrix))
    if not spans:
        raise ViewError("expected recorded adapters above the first attention, where inputs depend on earlier words")
    return spans
