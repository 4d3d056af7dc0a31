"""Base class of what a server may do besides averaging, with what the documentation says of each deviation."""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from fedleak.core.class_paths import check_declared
from fedleak.core.ranges import check_fields
from fedleak.core.taxonomy import Taxonomy

Part = Literal["shows", "sends", "selects"]
_LETTERS: dict[Part, str] = {"shows": "F", "sends": "F", "selects": "H"}
"""Weakest threat model (`fedleak.core.taxonomy`) that may do it: F manipulates, only H also selects clients."""


@dataclass(frozen=True)
class Notice:
    """Who would notice a deviation, and how.

    Attributes:
        who: ``client``: it looks at what it receives; ``auditor``: he looks at the server's log, or at a recording.
        how: what is looked at, as text.
        checks: checks and defences of `defenses` that do it.
    """

    who: Literal["client", "auditor"]
    how: str
    checks: tuple[type, ...] = ()


@dataclass(frozen=True, kw_only=True, eq=False)
class Deviation:
    """Base class of what a server may do besides averaging; options are fields whose types check their values.

    The class attributes are the description from which the page of the documentation is made. No list names the
    deviations: a class in a file of this folder, or at a class path from outside, is found.

    Attributes:
        name: name in recordings; deviations of different parts may share one.
        part: what deviates: what the server ``shows`` (features, images), what it ``sends`` (models), or whom it
            ``selects``.
        does: what the server does; completes "The server ...".
        noticed: who would notice it, and how; empty if nobody would.
        references: the publications that define it, by their keys in `fedleak.core.bibliography`, e.g.
            ``("Pham25, section III.C.1",)``; empty for this project's own.

    Example:
        >>> from dataclasses import dataclass
        >>> import torch
        >>> from fedleak.server import FeatureManipulation, Notice
        >>> @dataclass(frozen=True, kw_only=True, eq=False)
        ... class Scaled(FeatureManipulation):
        ...     '''All features times a factor.'''
        ...
        ...     name = "scaled"
        ...     does = "multiplies all features by a factor"
        ...     noticed = (Notice("client", "values outside the usual range"),)
        ...     factor: float = 2.0
        ...
        ...     def features(self, model, features, mask, *, generator):
        ...         return features * self.factor
        >>> shown = Scaled().features({}, torch.ones(1, 1, 1, 2), torch.ones(1, 1, 1), generator=torch.Generator())
        >>> shown.flatten()
        tensor([2., 2.])
        >>> Scaled.public_names().letter
        'F'
    """

    name: ClassVar[str]
    part: ClassVar[Part]
    does: ClassVar[str]
    noticed: ClassVar[tuple[Notice, ...]]
    references: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def public_names(cls) -> Taxonomy:
        """The letter of its threat model; the other taxonomies name what is inferred, not what a server does."""
        return Taxonomy(letter=_LETTERS[cls.part])

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "name" in vars(cls):
            check_declared(cls, Deviation)

    def __post_init__(self) -> None:
        check_declared(type(self), Deviation)
        check_fields(self)
