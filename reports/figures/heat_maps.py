"""Heat maps of users' biases, and of the change of layers by class."""

from collections.abc import Mapping
from typing import Any

import pandas as pd
import seaborn as sns
from matplotlib.figure import Figure
from torch import Tensor

from evaluation.scores import describe
from reports.figures.drawn_figure import DrawnFigure

_ROWS = 12
"""Number of rows of the last layer in a figure: those in which users differ most."""
_COLUMNS = 640
"""Largest number of entries of a layer in a figure."""


def bias_figure(known: Tensor, anonymous: Tensor, setting: Mapping[str, Any]) -> DrawnFigure:
    """Heat map of users' biases, with each user's known device above its anonymous device.

    Args:
        known: ``(U, K)`` log movement of each row of the last layer, relative to all users.
        anonymous: ``(U, K)`` the same for the anonymous devices.
        setting: setting of the cell.
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
