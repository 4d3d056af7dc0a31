"""Maps of updates and of users in two dimensions, and heat maps of users' biases and of layers by class."""

from __future__ import annotations

import math
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
    points_by_title = {}
    for title, (honest, manipulated) in maps.items():
        points = [
            pd.DataFrame(honest.tolist(), columns=["x", "y"]).assign(owner="honest"),
            pd.DataFrame(manipulated.tolist(), columns=["x", "y"]).assign(owner="manipulated"),
        ]
        points_by_title[title] = pd.concat(points, ignore_index=True)
    return DrawnFigure(caption, figure=_scatter_maps(points_by_title), name="update-maps")


def map_figure(
    vectors_by_title: Mapping[str, tuple[Tensor, Tensor]], setting: Mapping[str, Any], *, seed: int
) -> DrawnFigure:
    """t-SNE maps of vectors ``(N, D)`` by title, with a colour per user ``(N,)``."""
    maps = {}
    users: set[int] = set()
    for title, (vectors, owners) in vectors_by_title.items():
        maps[title] = _flat(vectors, seed).assign(owner=owners.tolist())
        users.update(owners.tolist())
    caption = f"t-SNE maps of {len(users)} users, one colour per user: {describe(setting)}."
    return DrawnFigure(caption, figure=_scatter_maps(maps), name="user-maps")


def _flat(vectors: Tensor, seed: int) -> pd.DataFrame:
    # scikit-learn's default of 30, less for few vectors: it must be smaller than their number.
    perplexity = min(30.0, max(2.0, (len(vectors) - 1) / 4))
    flat = TSNE(perplexity=perplexity, init="pca", random_state=seed).fit_transform(vectors.double().numpy())
    return pd.DataFrame(flat, columns=["x", "y"])


def _scatter_maps(maps: Mapping[str, pd.DataFrame]) -> Figure:
    """A panel per title, with points at ``x`` and ``y`` in the colour of their ``owner``."""
    figure = Figure(figsize=(0.4 + 3.2 * len(maps), 3.4), layout="constrained")
    panels = figure.subplots(1, len(maps), squeeze=False)[0]
    owners = sorted({owner for points in maps.values() for owner in points["owner"]})
    for axes, (title, points) in zip(panels, maps.items(), strict=True):
        # Two owners are honest and manipulated updates, which the first panel explains; users are nameless.
        has_legend = axes is panels[0] and len(owners) == 2
        sns.scatterplot(
            points,
            x="x",
            y="y",
            hue="owner",
            hue_order=owners,
            palette=sns.color_palette("colorblind", len(owners)),
            s=14,
            ax=axes,
            legend=has_legend,
        )
        axes.set(title=title, xticks=[], yticks=[], xlabel="", ylabel="")
        if has_legend:
            axes.get_legend().set_title("")
    return figure


def bias_figure(known_devices: Tensor, anonymous: Tensor, setting: Mapping[str, Any]) -> DrawnFigure:
    """Heat map of users' biases, with each user's known device above its anonymous device.

    A bias ``(U, K)`` is the log movement of each row of the last layer, relative to all users.
    """
    # The rows in which users differ most, in their order in the layer.
    rows = known_devices.std(0).topk(min(_ROWS, known_devices.shape[1])).indices.sort().values
    biases = {}
    for user in range(len(known_devices)):
        biases[f"user {user}, known"] = known_devices[user, rows].tolist()
        biases[f"user {user}, anonymous"] = anonymous[user, rows].tolist()
    figure = Figure(figsize=(6, 0.6 + 0.28 * len(biases)), layout="constrained")
    table = pd.DataFrame.from_dict(biases, orient="index", columns=rows.tolist())
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
        step = math.ceil(values.shape[1] / _COLUMNS)
        shown = values[:, ::step].double().numpy()
        # Colours are symmetric around no change; a layer without any change needs a range too.
        largest = max(float(abs(shown).max()), 1e-12)
        sns.heatmap(shown, center=0, vmin=-largest, vmax=largest, cmap="RdBu_r", xticklabels=False, ax=axes)
        axes.set(title=layer, xlabel="entry of the layer", ylabel="class of the images")
    caption = f"Change of each layer on the images of one class: {describe(setting)}."
    return DrawnFigure(caption, figure=figure, name="class-gradients")
