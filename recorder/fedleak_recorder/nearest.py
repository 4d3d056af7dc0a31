"""Names near to a misspelt one, for the way out of an error."""

import difflib
from collections.abc import Iterable

_SIMILAR = 0.65
"""Similarity in [0, 1] from which a name is suggested: one wrong letter in three, or two letters exchanged in five."""
_MOST = 3
"""Names that are suggested at most."""


def nearest(word: str, names: Iterable[str]) -> list[str]:
    """Names that a person may have meant by a word, nearest first; empty if none is near.

    Capital letters do not count, nor what stands before the last ``/`` or ``.`` of a name, if the word has none; an
    abbreviation is near to what it abbreviates.

    >>> nearest("learnin_rate", ["epochs", "learning_rate"]), nearest("lr", ["epochs", "learning_rate"])
    (['learning_rate'], ['learning_rate'])
    >>> nearest("Direktion", ["interactions/direction", "composition/l1"]), nearest("x", ["epochs"])
    (['interactions/direction'], [])
    """
    by_spelling: dict[str, str] = {}
    for name in names:
        by_spelling.setdefault(name.lower(), name)
        last_part = name.replace(".", "/").rpartition("/")[2]
        by_spelling.setdefault(last_part.lower(), name)
    similar = difflib.get_close_matches(word.lower(), by_spelling, n=_MOST, cutoff=_SIMILAR)
    # One letter would abbreviate too many names.
    abbreviated = [spelling for spelling in by_spelling if len(word) > 1 and _initials(spelling) == word.lower()]
    # A name may be near by two of its spellings.
    names_near = dict.fromkeys(by_spelling[spelling] for spelling in [*similar, *abbreviated])
    return list(names_near)[:_MOST]


def did_you_mean(word: str, names: Iterable[str], otherwise: str) -> str:
    """Way out of an error about a misspelt name: the names near to it, or `otherwise`.

    >>> did_you_mean("epoch", ["epochs", "rate"], "Known: epochs, rate.")
    'Did you mean epochs?'
    """
    names_near = nearest(word, names)
    return f"Did you mean {' or '.join(names_near)}?" if names_near else otherwise


def _initials(name: str) -> str:
    """First letters of the parts of a name."""
    return "".join(part[:1] for part in name.replace("-", "_").split("_"))
