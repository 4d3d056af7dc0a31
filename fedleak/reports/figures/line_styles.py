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
"""Colours of baselines."""
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
        if not self.dashes:
            return "-"
        return (0, self.dashes)


def line_styles(results: pd.DataFrame) -> dict[str, LineStyle]:
    """Style of each line of results with ``attack`` and ``role``."""
    rows = results.drop_duplicates("attack").sort_values("attack")
    styles: dict[str, LineStyle] = {}
    taken: set[LineStyle] = set()
    names_and_roles = list(zip(rows["attack"], rows["role"], strict=True))
    # 1. Attacks of this project have the colour of their position in the family, unless two families clash.
    for name, role in names_and_roles:
        position = _positions().get(name)
        if role in ATTACKS and position is not None:
            style = LineStyle(COLOURS[position % len(COLOURS)], _SOLID)
            if style not in taken:
                styles[name] = style
                taken.add(style)
    # 2. Variants, attacks of other packages and clashes have the next style that is free; baselines grey, others black.
    free = _solid_then_dashed()
    greys = itertools.cycle(zip(_GREYS, _DASHES, strict=True))
    blacks = itertools.cycle(("#000000", dashes) for dashes in (_SOLID, *_DASHES))
    for name, role in names_and_roles:
        if role == "baseline":
            styles[name] = LineStyle(*next(greys))
        elif role not in ATTACKS:
            styles[name] = LineStyle(*next(blacks))
        elif name not in styles:
            styles[name] = next(style for style in free if style not in taken)
            taken.add(styles[name])
    return styles


def _solid_then_dashed() -> Iterator[LineStyle]:
    """Solid lines in every colour, then dashed ones; without end, with longer and longer dashes."""
    # The longest of the fixed dashes is 6 line widths, so further ones begin at 7.
    longer = ((float(width), 1.0) for width in itertools.count(7))
    for dashes in itertools.chain((_SOLID, *_DASHES), longer):
        for colour in COLOURS:
            yield LineStyle(colour, dashes)


@functools.cache
def _positions() -> dict[str, int]:
    """Position of each attack of the project among those of its first family that are no baselines."""
    families: dict[str, list[str]] = defaultdict(list)
    for attack in described():
        if not attack.baseline:
            families[attack.family].append(attack.name)
    positions: dict[str, int] = {}
    for names in families.values():
        for position, name in enumerate(names):
            positions.setdefault(name, position)
    return positions
