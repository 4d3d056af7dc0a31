"""How often an attack is certain of what is false, by family of attacks: ``python -m bench.certificates FAMILY``.

A family is one module of this folder with a function ``conditions() -> Mapping[str, Callable[[int], Counts]]``: by the
name of each condition, a function that attacks federations drawn with a seed and counts what is certified.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Counts:
    """What an attack returned under one condition.

    Attributes:
        certified: number of records (rows, sentences) that the attack calls certain.
        false: how many of these no client has, or has fewer times.
        recovered: number of the clients' records that are among those that the attack returned, certain or not.
        records: number of records that the clients have.
        refusal: why the attack refused, if it did for any client.
    """

    certified: int = 0
    false: int = 0
    recovered: int = 0
    records: int = 0
    refusal: str = ""

    def __add__(self, other: "Counts") -> "Counts":
        return Counts(
            certified=self.certified + other.certified,
            false=self.false + other.false,
            recovered=self.recovered + other.recovered,
            records=self.records + other.records,
            refusal=self.refusal or other.refusal,
        )
