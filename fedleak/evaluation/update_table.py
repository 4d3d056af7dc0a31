"""What the updates of a recording look like: size, rank and noise floor of each tensor, without any attack."""

import dataclasses
import itertools
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from fedleak.client.last_layer import output_layer
from fedleak.client.network import ClassifierAlgorithm
from fedleak.client.pretrained import PretrainedAlgorithm
from fedleak.core.batch_norm import is_statistic
from fedleak.core.errors import ViewError
from fedleak.core.view import RoundView
from fedleak.evaluation.noise_floor import spectral_noise
from fedleak.evaluation.result_names import MEANING as MEANING
from fedleak.evaluation.scores import from_records
from fedleak.recordings.recorded_learner import recorded_learner
from fedleak.recordings.recording import Recording

_VIEWS = 4
"""Views that are described: of the first rounds."""
_VICTIMS = 8
"""Clients of each view."""
_NOISE = 0.9
"""Share of a matrix' energy that white noise with its median singular value has, above which it is called noise."""
_LARGEST = 2**20
"""Numbers of a matrix above which singular values are not computed."""


def update_table(recording: Recording) -> pd.DataFrame:
    """One row per tensor of the model; columns as in `MEANING`, and remarks."""
    first = recording.rounds[:_VIEWS]
    views = list(itertools.islice(recording.views(victims_per_view=_VICTIMS, rounds=first), _VIEWS))
    if not views:
        return pd.DataFrame()
    algorithm = recorded_learner(recording)
    head = _head(dataclasses.replace(views[0], algorithm=algorithm))
    rank = algorithm.adapter.rank if isinstance(algorithm, PretrainedAlgorithm) else None
    rows = [_row(views, name, head) for name in views[0].deltas]
    for row in rows:
        row["remark"] = row["remark"] or _of_adapter(views, row, rank)
    return from_records(rows)


def _head(view: RoundView) -> dict[str, str]:
    """What the last layer is taken for, by the name of its bias; empty if there is none, or the clients rank items."""
    if view.row_parameters or not isinstance(view.algorithm, ClassifierAlgorithm | None):
        return {}
    try:
        bias = f"{output_layer(view)}.bias"
    except ViewError:
        last = list(view.deltas)[-1]
        if view.deltas[last][0].numel() > 1:
            return {}
        return {last: "last layer, of one output: if it is a logit, the share of positives is read from it"}
    if isinstance(view.algorithm, ClassifierAlgorithm):
        return {bias: "last layer: class shares are read from it"}
    return {bias: "last layer: if its outputs are classes of a softmax, class shares are read from it"}


def _row(views: list[RoundView], name: str, head: dict[str, str]) -> dict[str, Any]:
    """Row of a tensor: its size in the updates, relative to that in the model, and of a matrix its rank and noise."""
    first = views[0]
    parts = [view.deltas[name].double().reshape(view.victims, -1) for view in views]
    norms = torch.cat([part.norm(dim=1) for part in parts])
    zeros = torch.cat([(part == 0).double().mean(1) for part in parts])
    models = [view.model[name].double().norm() for view in views if name in view.model]
    model = float(torch.stack(models).mean()) if models else 0.0
    # In the model, a table has all of its rows.
    shape = tuple(first.model[name].shape) if name in first.model else tuple(first.deltas[name].shape[1:])
    row = {
        "tensor": name,
        "shape": " x ".join(map(str, shape)) or "1",
        "norm": float(norms.mean()),
        "smallest": float(norms.min()),
        "largest": float(norms.max()),
        "relative": float(norms.mean()) / model if model else None,
        "rank": None,
        "of": None,
        "noise floor": None,
        "zeros": float(zeros.mean()),
        "n": len(norms),
        "remark": _remark(first, name, head),
    }
    is_matrix = first.deltas[name].dim() > 2 and name not in first.row_parameters
    if is_matrix and first.deltas[name][0].numel() <= _LARGEST:
        ranks = torch.cat([effective_rank(view.deltas[name].double().flatten(2)) for view in views])
        row["rank"] = float(ranks.nanmean())
        row["of"] = min(first.deltas[name].flatten(2).shape[1:])
        row["noise floor"] = _noise_floor(views, name)
    return row


def _noise_floor(views: list[RoundView], name: str) -> float | None:
    """Mean standard deviation of white noise with the median singular value of a tensor; None if it is too small."""
    floors = []
    for view in views:
        noise = spectral_noise(dataclasses.replace(view, deltas={name: view.deltas[name]}))
        if noise is not None:
            floors.append(noise.scale)
    if floors:
        return float(torch.cat(floors).mean())
    return None


def _of_adapter(views: list[RoundView], row: dict[str, Any], rank: int | None) -> str | None:
    """What is remarkable about a matrix of an adapter, whose declared rank is known or not; None for nothing."""
    name = row["tensor"]
    kind = next((part for part in ("lora_A", "lora_B") if part in name), None)
    if kind is None:
        return None
    # The rank is the number of rows of A, and of columns of B.
    if name in views[0].model and rank is not None:
        recorded = views[0].model[name].shape[0 if kind == "lora_A" else 1]
        if recorded != rank:
            return f"declared rank is not the rank: {rank} is declared, the adapter has {recorded}"
    if not row["largest"]:
        name_of_b = name.replace("lora_A", "lora_B")
        models = [view.model for view in views if name_of_b in view.model]
        if kind == "lora_A" and all(not bool(model[name_of_b].any()) for model in models):
            return "adapter did not move: its B was zero, so one step moves B alone"
        return "adapter did not move"
    # White noise of standard deviation s on d numbers has an energy of s^2 d.
    numbers = views[0].deltas[name][0].numel()
    if row["noise floor"] and row["noise floor"] ** 2 * numbers > _NOISE * row["norm"] ** 2:
        return "only noise moved: its singular values are those of white noise"
    return None


def effective_rank(matrices: Tensor) -> Tensor:
    """``(V,)`` effective rank ``(sum s^2)^2 / sum s^4`` of ``(V, M, N)`` with singular values s; NaN for zero."""
    wide = matrices if matrices.shape[1] <= matrices.shape[2] else matrices.mT
    # Of M M' the trace is sum s^2, and the sum of squares sum s^4.
    products = wide @ wide.mT
    total = products.diagonal(dim1=1, dim2=2).sum(1)
    return total.square() / products.square().sum((1, 2)).where(total > 0, torch.nan)


def _remark(view: RoundView, name: str, head: dict[str, str]) -> str | None:
    if is_statistic(name):
        return "batch-norm statistic: an average over the client's own examples, and no attack's simulation has it"
    if view.noise_scale(name) > 0:
        return f"declared noise of standard deviation {view.noise_scale(name):.3g}"
    if name in view.row_parameters:
        return "rows of the served items only"
    return head.get(name)
