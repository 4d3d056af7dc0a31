"""Labels of curves and of attacks' own tables: of which attack, in which cell and in which run."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from fedleak.evaluation.scores import describe

_PRIOR = "prior"


@dataclass(frozen=True)
class Label:
    """A label is what the curve or the own table of an attack is called where several cells or runs have one.

    Attributes:
        attack: label of the attack, see `fedleak.evaluation.scores.SCHEMA`, or name of another table.
        setting: description of the cell; empty where there is only one.
        run: name of the run; empty where there is only one.

    Example:
        >>> str(Label("codebook+prior", "digits, epsilon 1", "first"))
        'codebook+prior (digits, epsilon 1) in first'
    """

    attack: str
    setting: str = ""
    run: str = ""

    @property
    def where(self) -> str:
        """What is printed after the attack."""
        """What is printed after the attack."""
        where = ""
        if self.setting:
            where += f" ({self.setting})"
        if self.run:
            where += f" in {self.run}"
        return where

    def __str__(self) -> str:
        """The label as it is printed."""
        return f"{self.attack}{self.where}"


def combined_label(label: str) -> str:
    """Label of an attack together with the priors of its question.

    >>> combined_label("ranking/codebook")
    'ranking/codebook+prior'
    """
    return f"{label}+{_PRIOR}"


def prior_label(family: str | None) -> str:
    """Label of the priors of a family's question alone.

    >>> prior_label("ranking")
    'ranking/prior'
    """
    return f"{family}/{_PRIOR}"


def attack_in_words(attack: str, setting: Mapping[str, Any], round_number: int | None) -> str:
    """Label of an attack with the setting and the round that it decides in.

    >>> attack_in_words("direction", {"epsilon": 8}, 2)
    'direction in epsilon 8 in round 2'
    """
    words = attack
    described = describe(setting)
    if described:
        words += f" in {described}"
    if round_number is not None:
        words += f" in round {round_number}"
    return words


def label_of_text(printed: str, attacks: Collection[str]) -> Label:
    """The label of a text that an earlier version stored without its parts; `attacks` are the labels it may be of.

    Nothing else reads a label back: without this, pages of stored tables would lose their curves.
    """
    # An attack's own label may hold a parenthesis: of those that fit, the longest is meant.
    fitting = [attack for attack in attacks if printed.startswith(f"{attack} (")]
    if not fitting:
        return Label(printed)
    attack = max(fitting, key=len)
    return Label(attack, printed.removeprefix(f"{attack} (").removesuffix(")"))
