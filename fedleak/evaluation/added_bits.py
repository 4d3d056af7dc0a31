"""Bits that an update adds to what is known of a client, what is left and possible, and the bound that is declared."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from scipy.stats import binom

from fedleak.evaluation.result_names import ATTACKS

if TYPE_CHECKING:
    from fedleak.evaluation.comparisons import Cells

Row = dict[str, Any]
_CHANCE = 1e-3
"""Probability of a result by chance below which a declaration is called false; small, as several attacks test it."""


@dataclass(frozen=True)
class DeclaredBound:
    """The most bits that an update carries by what clients declare, and a test of the declaration.

    Attributes:
        bits: the bound.
        matched: share of clients that are matched with their updates, a row of results; None where it was not measured.
        allowed: the largest share that the declared epsilon allows, whatever the server knew before.
    """

    bits: float
    matched: Row | None = None
    allowed: float = 1.0

    @property
    def is_false(self) -> bool:
        """Whether so many clients are matched as the declaration allows with a probability of `_CHANCE` at most."""
        return self.chance < _CHANCE

    @property
    def right(self) -> int:
        """Number of clients that are matched."""
        """Number of clients that are matched."""
        matched = 0
        if self.matched is not None:
            matched = round(self.matched["mean"] * self.matched["n"])
        return matched

    @property
    def chance(self) -> float:
        """Probability with which so many are matched, or more, if the declaration is true."""
        """Probability with which so many are matched, or more, if the declaration is true."""
        if self.matched is None:
            return 1.0
        # P(X >= right) of the binomial law of n clients, each matched with the allowed probability.
        return float(binom.sf(self.right - 1, self.matched["n"], self.allowed))


@dataclass(frozen=True)
class AddedBits:
    """The attack on a question whose results add the most bits to the prior.

    Attributes:
        row: its result.
        left: bits that remain unknown, None where they were not measured.
        possible: the most that all answers together have, None where it is unknown.
        beyond_counts: bits beyond the number of a client's records of each class, None where it was not measured.
        bound: what clients declare; None where they declare nothing that bounds updates.
    """

    row: Row
    left: float | None = None
    possible: float | None = None
    beyond_counts: float | None = None
    bound: DeclaredBound | None = None


def added_bits(row: Mapping[str, Any], cells: "Cells") -> AddedBits | None:
    """The most bits on the question and setting of a row of results; None where none were measured."""
    measured = [bits_row for bits_row in cells.cell(row, "bits") if bits_row["role"] in ATTACKS]
    # Of equal ones, that with the priors.
    best = max(measured, key=lambda bits_row: (bits_row["mean"], bits_row.get("with_prior") is True), default=None)
    if best is None:
        return None
    return AddedBits(
        row=best,
        left=cells.of_attack(best, "bits-left"),
        possible=cells.of_attack(best, "bits-possible"),
        beyond_counts=cells.of_attack(best, "bits-beyond-counts"),
        bound=declared_bound(best, cells),
    )


def declared_bound(row: Mapping[str, Any], cells: "Cells") -> DeclaredBound | None:
    """Bound on the attack of a row with the test of it; None where clients declare nothing that bounds updates."""
    bits = cells.of_attack(row, "bits-bound")
    if bits is None:
        return None
    allowed = cells.of_attack(row, "matched-clients-bound")
    of_attack = [cell_row for cell_row in cells.cell(row, "matched-clients") if cell_row["attack"] == row["attack"]]
    if not of_attack or allowed is None:
        return DeclaredBound(bits)
    return DeclaredBound(bits, of_attack[0], allowed)


def false_bounds(cells: "Cells") -> list[str]:
    """A sentence on each question of which an attack shows that a declared epsilon is false; see `DeclaredBound`."""
    sentences: dict[Any, str] = {}
    for row in cells.rows:
        if row["metric"] != "bits" or row["role"] not in ATTACKS:
            continue
        bound = declared_bound(row, cells)
        if bound is not None and bound.is_false and bound.matched is not None:
            sentences[row["question"]] = (
                f"The declared epsilon is false: it allows {bound.allowed:.0%} of the clients to be matched with their"
                f" updates on average, whatever the server knew before, and {row['attack']} matches {bound.right} of"
                f" {bound.matched['n']}, which then has a probability of {bound.chance:.1g}"
            )
    return list(sentences.values())
