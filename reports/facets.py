"""A metric against a key of the setting, in as many panels as it takes."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from reports.figures import COLOURS, svg
from reports.results import Result
from reports.settings import differing

_PANEL = 5
"""Most values that a key may have to be laid out in panels."""
_LEGEND_INCHES = (0.6, 0.065)
"""Width of an entry without its text, and of a letter."""
_STYLES = ("-", "--", ":", "-.")


def against(results: Sequence[Result], key: str, metric: str) -> str:
    """Each attack's mean against the values of `key`, with intervals, and stars for the papers.

    The panels' rows and columns are two further keys of the setting where they vary; the rest is told by the line.
    """
    rows, columns = _panel_keys(results, key)
    heights = list(dict.fromkeys(_value(r, rows) for r in results))
    widths = list(dict.fromkeys(_value(r, columns) for r in results))
    figure = Figure(figsize=(1.5 + 3.6 * len(widths), 0.9 + 2.5 * len(heights)), layout="constrained")
    panels = figure.subplots(len(heights), len(widths), squeeze=False, sharex=True, sharey=True)
    ticks = sorted({str(r.setting[key]) for r in results}, key=float)
    lines = _lines(results, {key, rows, columns})
    for (i, height), (j, width) in itertools.product(enumerate(heights), enumerate(widths)):
        inside = [r for r in results if _value(r, rows) == height and _value(r, columns) == width]
        axes = panels[i, j]
        axes.set_title(" ".join(part for part in (height, width) if part), fontsize=9)
        _draw(axes, inside, key, ticks, lines)
        axes.set_ylabel(metric if j == 0 else "")
        axes.set_xlabel(key if i == len(heights) - 1 else "")
    handles, labels = panels[0, 0].get_legend_handles_labels()
    wide = _LEGEND_INCHES[0] + _LEGEND_INCHES[1] * max(len(label) for label in labels)
    fitting = min(3, max(1, int(figure.get_figwidth() // wide)))
    figure.legend(handles, labels, loc="outside lower center", ncols=fitting, frameon=False, fontsize=8)
    return svg(figure)


@dataclass(frozen=True)
class _Lines:
    """What tells one line of a panel from another.

    Attributes:
        keys: keys of the setting that neither the panels nor the axis tell.
        looks: colour by attack and style by the values of `keys`.
    """

    keys: set[str]
    looks: dict[tuple[str, str], tuple[str, str]]

    def cells(self, results: Sequence[Result], line: tuple[str, str]) -> list[Result]:
        return [r for r in results if (r.attack, _rest(r, self.keys)) == line]


def _lines(results: Sequence[Result], told: set[str | None]) -> _Lines:
    keys = differing([r.setting for r in results]) - told
    if len({(r.attack, r.setting.get("manipulation")) for r in results}) == len({r.attack for r in results}):
        keys -= {"manipulation"}  # the attack's name tells it
    pairs = list(dict.fromkeys((r.attack, _rest(r, keys)) for r in results))
    attacks = list(dict.fromkeys(attack for attack, _ in pairs))
    rests = list(dict.fromkeys(rest for _, rest in pairs))
    looks = {
        (attack, rest): (COLOURS[attacks.index(attack) % len(COLOURS)], _STYLES[rests.index(rest) % len(_STYLES)])
        for attack, rest in pairs
    }
    return _Lines(keys, looks)


def _draw(axes: Axes, results: Sequence[Result], key: str, ticks: Sequence[str], lines: _Lines) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.2)
    axes.set_xticks(range(len(ticks)), ticks)
    for line, (colour, style) in lines.looks.items():
        cells = sorted(lines.cells(results, line), key=lambda r: float(r.setting[key]))
        at = [ticks.index(str(r.setting[key])) for r in cells]
        spread = [[r.mean - r.ci95[0] for r in cells], [r.ci95[1] - r.mean for r in cells]]
        label = ", ".join(part for part in line if part)
        means = [r.mean for r in cells]
        axes.errorbar(at, means, yerr=spread, color=colour, ls=style, marker="o", ms=3, capsize=2, lw=1.3, label=label)
        stars = [(x, r.paper.value) for x, r in zip(at, cells, strict=True) if r.paper is not None]
        if stars:
            axes.plot(*zip(*stars, strict=True), ls="", marker="*", ms=7, color=colour, mec="black", mew=0.4)


def _panel_keys(results: Sequence[Result], key: str) -> tuple[str | None, str | None]:
    free = differing([r.setting for r in results]) - {key, "manipulation", "data"}
    free = {k for k in free if len({repr(r.setting.get(k)) for r in results}) <= _PANEL}
    words = [k for k in results[0].setting if k in free and isinstance(results[0].setting[k], str)]
    first, second, *_ = [*words, None, None]
    return first, second


def _value(result: Result, key: str | None) -> str:
    return "" if key is None else str(result.setting.get(key, ""))


def _rest(result: Result, keys: set[str]) -> str:
    return ", ".join(f"{k} {v}" for k, v in result.setting.items() if k in keys)
