"""Maps of updates and of users in two dimensions, and heat maps of users' biases and of layers by class."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pandas as pd
import seaborn as sns
from matplotlib.figure import Figure
from sklearn.manifold import TSNE

from fedleak.evaluation.scores import describe
from fedleak.reports.figures.figure_data import DrawnFigure

if TYPE_CHECKING:
    from torch import Tensor

_ROWS = 12
"""Number of rows of the last layer in a figure: those in which users differ most."""
_COLUMNS = 640
"""Largest number of entries of a layer in a figure."""


def update_maps(maps: Mapping[str, tuple[Tensor, Tensor]], caption: str) -> DrawnFigure:
    """Maps of updates, a panel per title: places ``(N, 2)`` of the honest updates and of the manipulated ones."""
    kinds = ("honest", "manipulated")
    parts = {
        title: [pd.DataFrame(p.tolist(), columns=["x", "y"]).assign(owner=k) for p, k in zip(both, kinds, strict=True)]
        for title, both in maps.items()
    }
    figure = _scatter_maps({title: pd.concat(both, ignore_index=True) for title, both in parts.items()})
    return DrawnFigure(caption, figure=figure, name="update-maps")


def map_figure(places: Mapping[str, tuple[Tensor, Tensor]], setting: Mapping[str, Any], *, seed: int) -> DrawnFigure:
    """t-SNE maps of vectors ``(N, D)`` by title, with a colour per user ``(N,)``."""
    maps = {title: _flat(vectors, seed).assign(owner=owners.tolist()) for title, (vectors, owners) in places.items()}
    users = {user for points in maps.values() for user in points["owner"]}
    caption = f"t-SNE maps of {len(users)} users, one colour per user: {describe(setting)}."
    return DrawnFigure(caption, figure=_scatter_maps(maps), name="user-maps")


def _flat(vectors: Tensor, seed: int) -> pd.DataFrame:
    perplexity = min(30.0, max(2.0, (len(vectors) - 1) / 4))
    flat = TSNE(perplexity=perplexity, init="pca", random_state=seed).fit_transform(vectors.double().numpy())
    return pd.DataFrame(flat, columns=["x", "y"])


def _scatter_maps(maps: Mapping[str, pd.DataFrame]) -> Figure:
    """A panel per title, with points at ``x`` and ``y`` in the colour of their ``owner``."""
    figure = Figure(figsize=(0.4 + 3.2 * len(maps), 3.4), layout="constrained")
    panels = figure.subplots(1, len(maps), squeeze=False)[0]
    owners = sorted({owner for points in maps.values() for owner in points["owner"]})
    hue = {"hue": "owner", "hue_order": owners, "palette": sns.color_palette("colorblind", len(owners))}
    for axes, (title, points) in zip(panels, maps.items(), strict=True):
        named = axes is panels[0] and len(owners) == 2
        sns.scatterplot(points, x="x", y="y", **hue, s=14, ax=axes, legend=named)
        axes.set(title=title, xticks=[], yticks=[], xlabel="", ylabel="")
        if named:
            axes.get_legend().set_title("")
    return figure


def bias_figure(known: Tensor, anonymous: Tensor, setting: Mapping[str, Any]) -> DrawnFigure:
    """Heat map of users' biases, with each user's known device above its anonymous device.

    A bias ``(U, K)`` is the log movement of each row of the last layer, relative to all users.
    """
    rows = known.std(0).topk(min(_ROWS, known.shape[1])).indices.sort().values
    sides = {"known": known[:, rows], "anonymous": anonymous[:, rows]}
    lines = {f"user {u}, {side}": values[u].tolist() for u in range(len(known)) for side, values in sides.items()}
    figure = Figure(figsize=(6, 0.6 + 0.28 * len(lines)), layout="constrained")
    table = pd.DataFrame.from_dict(lines, orient="index", columns=rows.tolist())
    axes = figure.subplots()
    label = "log movement relative to all users"
    sns.heatmap(table, center=0, cmap="RdBu_r", cbar_kws={"label": label}, ax=axes)
    axes.set_xlabel("row of the last layer")
    caption = f"Users' biases: movement of the rows of the last layer, {describe(setting)}."
    return DrawnFigure(caption, figure=figure, name="user-bias")


def change_panels(changes: Mapping[str, Tensor], setting: Mapping[str, Any]) -> DrawnFigure:
    """Heat maps of the change ``(K, D)`` of each layer by class, of at most `_COLUMNS` entries at equal distances."""
    figure = Figure(figsize=(8, 2.4 * len(changes)), layout="constrained")
    panels = figure.subplots(len(changes), 1, squeeze=False)[:, 0]
    for axes, (layer, values) in zip(panels, changes.items(), strict=True):
        shown = values[:, :: -(-values.shape[1] // _COLUMNS)].double().numpy()
        most = max(float(abs(shown).max()), 1e-12)
        sns.heatmap(shown, center=0, vmin=-most, vmax=most, cmap="RdBu_r", xticklabels=False, ax=axes)
        axes.set(title=layer, xlabel="entry of the layer", ylabel="class of the images")
    caption = f"Change of each layer on the images of one class: {describe(setting)}."
    return DrawnFigure(caption, figure=figure, name="class-gradients")
