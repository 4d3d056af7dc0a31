"""Refusal of a data set whose public member is nearly one that a recording asks for."""

from collections import Counter

from fedleak.core.errors import require
from fedleak_recorder.nearest import nearest

_OTHER_LETTERS = 0.15
"""Share of letters up to which a name that differs in them is a misspelt one; in ``auxilary``, one of 17 differs."""


def refuse_misspelt(kind: type, base: type) -> None:
    """Refuses a subclass with a public member that is nearly one of those of its base, which a recording asks for."""
    offered = [name for name in vars(base) if not name.startswith("_")]
    own_members = set[str]()
    for ancestor in kind.__mro__:
        if not issubclass(base, ancestor):  # of the base and of what it derives from, names are right
            own_members.update(vars(ancestor))
    for name in sorted(own_members - {*offered}):
        if name.startswith("_"):
            continue
        for near in nearest(name, offered)[:1]:
            misspelt = _other_letters(name, near) <= _OTHER_LETTERS
            way_out = "Correct the name, or begin it with _."
            require(not misspelt, f"{near} in {kind.__name__}", f"{name}; did you mean {near}?", way_out)


def _other_letters(name: str, near: str) -> float:
    """Share of the letters of two names that the other one lacks, wherever they stand."""
    letters = Counter(name)
    other_letters = Counter(near)
    differing = (letters - other_letters).total() + (other_letters - letters).total()
    return differing / (len(name) + len(near))
