"""Figures of who is who: users' biases on both of their devices, and maps in which users lie together."""

from collections.abc import Mapping
from typing import Any

from matplotlib.figure import Figure
from sklearn.manifold import TSNE
from torch import Tensor

from reports.figures import COLOURS, svg
from reports.settings import describe

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
    pairs = [value for user in range(len(known)) for value in (known[user, rows], anonymous[user, rows])]
    figure = Figure(figsize=(6, 0.6 + 0.28 * len(pairs)), layout="constrained")
    axes = figure.subplots()
    reach = max(float(value.abs().max()) for value in pairs)
    drawn = axes.imshow([v.tolist() for v in pairs], aspect="auto", cmap="RdBu_r", vmin=-reach, vmax=reach)
    names = [f"user {user}, {side}" for user in range(len(known)) for side in ("known", "anonymous")]
    axes.set_yticks(range(len(pairs)), names, fontsize=6)
    axes.set_xticks(range(len(rows)), [str(row) for row in rows.tolist()], fontsize=6)
    axes.set_xlabel("row of the last layer")
    figure.colorbar(drawn, ax=axes, label="further than for all, log")
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
    figure = Figure(figsize=(7, 3.4), layout="constrained")
    panels = figure.subplots(1, len(places), squeeze=False)[0]
    users = sorted({user for _, owners in places.values() for user in owners.tolist()})
    for axes, (title, (vectors, owners)) in zip(panels, places.items(), strict=True):
        perplexity = min(30.0, max(2.0, (len(vectors) - 1) / 4))
        flat = TSNE(perplexity=perplexity, init="pca", random_state=seed).fit_transform(vectors.double().numpy())
        for number, user in enumerate(users):
            own = owners.numpy() == user
            marker = "ox"[number // len(COLOURS) % 2]
            axes.scatter(*flat[own].T, s=9, marker=marker, lw=0.7, color=COLOURS[number % len(COLOURS)])
        axes.set(title=title, xticks=[], yticks=[])
    return f"t-SNE maps of {len(users)} users, a colour each: {describe(setting)}.", svg(figure)
