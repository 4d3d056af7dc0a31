"""True and inferred class compositions: a figure with a panel for every client, and the numbers as a file."""

import dataclasses
import json
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from datamodules.recording_format import write_whole
from reports.figures import COLOURS, svg
from reports.results import Profile

_COLUMNS = 5
_MOST_CLIENTS = 20
_MOST_ATTACKS = 4
_WITHOUT = ("random-guess", "uniform-present")
"""Guesses, which need no line of their own."""


def composition_figures(profiles: Sequence[Profile], settings: int = 8) -> list[tuple[str, str]]:
    """Captions and SVG texts, one for each of the first settings: of its first seed and round.

    Args:
        profiles: what was inferred.
        settings: most figures.
    """
    drawn: list[tuple[str, str]] = []
    for setting in list(dict.fromkeys(_without_round(profile) for profile in profiles))[:settings]:
        inside = [p for p in profiles if _without_round(p) == setting]
        first = [p for p in inside if (p.seed, p.round) == (inside[0].seed, inside[0].round)]
        kept = [p for p in first if p.attack not in _WITHOUT] or first
        words = ", ".join(f"{key} {value}" for key, value in kept[0].setting.items())
        caption = f"True (bars) and inferred class shares of every client with 95% intervals: {words}."
        drawn.append((caption, composition_figure(kept)))
    return drawn


def _without_round(profile: Profile) -> str:
    return json.dumps({key: value for key, value in profile.setting.items() if key != "round"})


def composition_figure(profiles: Sequence[Profile]) -> str:
    """One panel per client of one round, ``(K, 4)`` numbers each: bars for the truth, a marker for every attack."""
    victims = list(dict.fromkeys(p.victim for p in profiles))[:_MOST_CLIENTS]
    attacks = list(dict.fromkeys(p.attack for p in profiles))[:_MOST_ATTACKS]
    columns = min(_COLUMNS, len(victims))
    rows = math.ceil(len(victims) / columns)
    figure = Figure(figsize=(2.6 * columns, 0.6 + 1.9 * rows), layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False, sharex=True).flatten()
    for number, (axes, victim) in enumerate(zip(panels, victims, strict=False), start=1):
        of_victim = {p.attack: np.array(p.classes, dtype=float) for p in profiles if p.victim == victim}
        _panel(axes, of_victim, attacks)
        axes.set_title(f"client {number}", fontsize=8)
    for axes in panels[len(victims) :]:
        axes.set_visible(False)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False, fontsize=8)
    return svg(figure)


def _panel(axes: Axes, of_victim: dict[str, np.ndarray], attacks: Sequence[str]) -> None:
    truth = next(iter(of_victim.values()))[:, 0]
    place = np.arange(len(truth))
    axes.bar(place, truth, color="#cccccc", label="true share")
    for order, attack in enumerate(attacks):
        if attack not in of_victim:
            continue
        values = of_victim[attack]
        spread = np.nan_to_num(np.abs(values[:, 2:].T - values[:, 1]))
        at = place + 0.2 * (order - (len(attacks) - 1) / 2)
        colour = COLOURS[order]
        axes.errorbar(at, values[:, 1], yerr=spread, label=attack, color=colour, marker="o", ms=2.5, ls="", lw=0.9)
    axes.set_xticks(place)
    axes.tick_params(labelsize=6)
    axes.spines[["top", "right"]].set_visible(False)


def write_compositions(path: Path, profiles: Sequence[Profile]) -> None:
    """One line per victim, attack and class: ``true, inferred, low, high``."""
    rows = []
    for profile in profiles:
        common = dataclasses.asdict(profile) | {"setting": json.dumps(profile.setting)}
        del common["classes"]
        for number, (true, inferred, low, high) in enumerate(profile.classes):
            rows.append(common | {"class": number, "true": true, "inferred": inferred, "low": low, "high": high})
    write_whole(path, pd.DataFrame(rows).to_csv(index=False).encode())
