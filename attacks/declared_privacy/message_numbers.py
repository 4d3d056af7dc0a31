"""Numbers of messages: in units of the declared noise, in a row, along the global model, or a sample of them."""

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from fedleak.attacks.declared_privacy.noise_tests import BLOCK, Array
from fedleak.core.view import View


def standardised(view: View, name: str, scale: float) -> Tensor:
    """``(V, n)`` numbers of a parameter in units of the declared noise, NaN where padded."""
    delta = view.deltas[name] / scale
    if name in view.row_parameters:
        is_served = _of_rows(view.served_mask, delta)
        delta = delta.masked_fill(~is_served, torch.nan)
    return delta.flatten(1)


def _of_rows(mask: Tensor, rows: Tensor) -> Tensor:
    """A mask ``(V, R)`` of rows with as many dimensions as ``rows (V, R, ...)``."""
    further = [1] * (rows.dim() - 2)
    return mask.reshape(*rows.shape[:2], *further)


def _model_part(view: View, name: str) -> Tensor:
    """``(V, n)`` values of a parameter in the global model, in the places of its deltas; 0 where it is unknown."""
    parameter = view.model.get(name)
    if parameter is None:
        delta = view.deltas[name].flatten(1)
        return delta.new_zeros(1, delta.shape[1]).expand(view.victims, -1)
    if name not in view.row_parameters:
        return parameter.flatten()[None].expand(view.victims, -1)
    rows = parameter[view.served_items.clamp(min=0)]
    return (rows * _of_rows(view.served_mask, rows)).flatten(1)


def along_model(together: Tensor, view: View, scales: Mapping[str, float]) -> Array:
    """``(V,)`` length of messages ``(V, n)`` along the global model; NaN where that is zero or unknown."""
    if view.model.keys().isdisjoint(scales):
        return np.full(len(together), np.nan)
    parts = [_model_part(view, name) / scale for name, scale in scales.items()]
    model = torch.cat(parts, dim=1).double()
    length = torch.linalg.vector_norm(model, dim=1)
    products = (together.nan_to_num(0).double() * model).sum(1)
    along = (products / length.clamp(min=1e-30)).abs()
    return np.where(length > 0, along.numpy(), np.nan)


def in_a_row(x: Tensor) -> Tensor:
    """``(1, K * m)`` messages after one another, each cut to whole blocks if it has any."""
    width = x.shape[1] // BLOCK * BLOCK
    if width:
        x = x[:, :width]
    return x.reshape(1, -1)


def strided(x: Tensor, size: int) -> Tensor:
    """At most about `size` numbers of each row, evenly spaced."""
    stride = -(-x.shape[1] // size)
    return x[:, :: max(stride, 1)]
