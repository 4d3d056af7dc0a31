"""Maps of updates and of users in two dimensions, a panel per layer or perplexity."""

from collections.abc import Mapping
from typing import Any

import pandas as pd
import seaborn as sns
from matplotlib.figure import Figure
from sklearn.manifold import TSNE
from torch import Tensor

from evaluation.scores import describe
from reports.figures.drawn_figure import DrawnFigure


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
    """t-SNE maps with a colour per user.

    Args:
        places: vectors ``(N, D)`` and their users ``(N,)`` by title.
        setting: setting of the cell.
        seed: seed of t-SNE.
    """
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
