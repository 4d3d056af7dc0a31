"""Maps: points of one kind or person in one colour."""

from collections.abc import Mapping

import pandas as pd
import seaborn as sns
from matplotlib.figure import Figure
from torch import Tensor

from reports.drawing import svg


def update_maps(maps: Mapping[str, tuple[Tensor, Tensor]]) -> str:
    """Maps of updates, one panel for each title: places ``(N, 2)`` of the honest ones and of the manipulated ones."""
    kinds = ("honest", "manipulated")
    parts = {
        title: [pd.DataFrame(p.tolist(), columns=["x", "y"]).assign(owner=k) for p, k in zip(both, kinds, strict=True)]
        for title, both in maps.items()
    }
    return scatter_maps({title: pd.concat(both, ignore_index=True) for title, both in parts.items()})


def scatter_maps(maps: Mapping[str, pd.DataFrame]) -> str:
    """A panel for each title, with a point at ``x`` and ``y`` in the colour of its ``owner``."""
    figure = Figure(figsize=(0.4 + 3.2 * len(maps), 3.4), layout="constrained")
    panels = figure.subplots(1, len(maps), squeeze=False)[0]
    owners = sorted({owner for points in maps.values() for owner in points["owner"]})
    looks = {"hue": "owner", "hue_order": owners, "palette": sns.color_palette("colorblind", len(owners))}
    for axes, (title, points) in zip(panels, maps.items(), strict=True):
        named = axes is panels[0] and len(owners) == 2
        sns.scatterplot(points, x="x", y="y", **looks, s=14, ax=axes, legend=named)
        axes.set(title=title, xticks=[], yticks=[], xlabel="", ylabel="")
        if named:
            axes.get_legend().set_title("")
    return svg(figure)
