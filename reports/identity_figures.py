"""Figures of who is who: users' biases on both of their devices, and maps in which users lie together."""

from collections.abc import Mapping
from typing import Any

import pandas as pd
import seaborn as sns
from matplotlib.figure import Figure
from sklearn.manifold import TSNE
from torch import Tensor

from evaluation.labels import describe
from reports.drawing import svg
from reports.maps import scatter_maps

_ROWS = 12
"""Rows of the last layer that are shown, those in which users differ most."""


def bias_figure(known: Tensor, anonymous: Tensor, setting: Mapping[str, Any]) -> tuple[str, str]:
    """Caption and SVG text: for each user a pair of lines, its known device's above its anonymous one's.

    Args:
        known: ``(U, K)`` how much further than for all users each row moved, in log.
        anonymous: ``(U, K)`` the same.
        setting: of the cell.
    """
    rows = known.std(0).topk(min(_ROWS, known.shape[1])).indices.sort().values
    sides = {"known": known[:, rows], "anonymous": anonymous[:, rows]}
    lines = {f"user {u}, {side}": values[u].tolist() for u in range(len(known)) for side, values in sides.items()}
    figure = Figure(figsize=(6, 0.6 + 0.28 * len(lines)), layout="constrained")
    table = pd.DataFrame.from_dict(lines, orient="index", columns=rows.tolist())
    axes = figure.subplots()
    sns.heatmap(table, center=0, cmap="RdBu_r", cbar_kws={"label": "further than for all, log"}, ax=axes)
    axes.set_xlabel("row of the last layer")
    return f"How far rows of the last layer move, users' biases: {describe(setting)}.", svg(figure)


def map_figure(
    places: Mapping[str, tuple[Tensor, Tensor]], setting: Mapping[str, Any], *, seed: int
) -> tuple[str, str]:
    """Caption and SVG text: a t-SNE map for each title, coloured by user.

    Args:
        places: by title, vectors ``(N, D)`` and their users ``(N,)``.
        setting: of the cell.
        seed: seed of t-SNE.
    """
    maps = {title: _flat(vectors, seed).assign(owner=owners.tolist()) for title, (vectors, owners) in places.items()}
    users = {user for points in maps.values() for user in points["owner"]}
    return f"t-SNE maps of {len(users)} users, a colour each: {describe(setting)}.", scatter_maps(maps)


def _flat(vectors: Tensor, seed: int) -> pd.DataFrame:
    perplexity = min(30.0, max(2.0, (len(vectors) - 1) / 4))
    flat = TSNE(perplexity=perplexity, init="pca", random_state=seed).fit_transform(vectors.double().numpy())
    return pd.DataFrame(flat, columns=["x", "y"])
