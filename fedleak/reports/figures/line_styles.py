"""Colours and dashes of the lines of a page: attacks in colours, baselines in grey, references in black.

An attack has the colour of its place among the attacks of its family, so it looks the same in all figures and reports.
"""

import functools
import itertools
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import pandas as pd
import seaborn as sns

from fedleak.evaluation.attack_descriptions import described
from fedleak.evaluation.result_names import ATTACKS

COLOURS: list[str] = [colour for colour in sns.color_palette("colorblind").as_hex() if colour != "#949494"]
"""Palette for colour-blind readers, without its grey."""
_GREYS = ("#6e6e6e", "#9a9a9a", "#4d4d4d", "#b9b9b9")
_DASHES: tuple[tuple[float, ...], ...] = ((4, 2), (1, 1.5), (6, 2, 1, 2), (3, 1, 1, 1))
_SOLID: tuple[float, ...] = ()


@dataclass(frozen=True)
class LineStyle:
    """Colour and dashes of a line.

    Attributes:
        colour: hexadecimal colour.
        dashes: lengths of dashes and gaps in line widths, none for a solid line.
    """

    colour: str
    dashes: tuple[float, ...]

    @property
    def linestyle(self) -> Literal["-"] | tuple[float, tuple[float, ...]]:
        """Line style of matplotlib."""
        return (0, self.dashes) if self.dashes else "-"


def line_styles(results: pd.DataFrame) -> dict[str, LineStyle]:
    """Style of each line of results with ``attack`` and ``role``."""
    rows = results.drop_duplicates("attack").sort_values("attack")
    found: dict[str, LineStyle] = {}
    free = _solid_then_dashed()
    taken: set[LineStyle] = set()
    lines = list(zip(rows["attack"], rows["role"], strict=True))
    for name, role in lines:
        place = _places().get(name)
        if role in ATTACKS and place is not None:
            style = LineStyle(COLOURS[place % len(COLOURS)], _SOLID)
            if style not in taken:
                found[name] = style
                taken.add(style)
    greys = itertools.cycle(zip(_GREYS, _DASHES, strict=True))
    blacks = itertools.cycle(("#000000", dashes) for dashes in (_SOLID, *_DASHES))
    for name, role in lines:
        if role in ATTACKS and name not in found:  # variants, attacks of other packages, and clashes of families
            found[name] = next(style for style in free if style not in taken)
            taken.add(found[name])
        elif role not in ATTACKS:
            found[name] = LineStyle(*next(greys if role == "baseline" else blacks))
    return found


def _solid_then_dashed() -> Iterator[LineStyle]:
    """Solid lines in every colour, then dashed ones; without end, with longer and longer dashes."""
    for dashes in itertools.chain((_SOLID, *_DASHES), ((float(width), 1.0) for width in itertools.count(7))):
        for colour in COLOURS:
            yield LineStyle(colour, dashes)


@functools.cache
def _places() -> dict[str, int]:
    """Place of each attack of the project among those of its first family that are no baselines."""
    families: dict[str, list[str]] = defaultdict(list)
    for kind in described():
        if not kind.baseline:
            families[kind.family].append(kind.name)
    found: dict[str, int] = {}
    for names in families.values():
        for place, name in enumerate(names):
            found.setdefault(name, place)
    return found
