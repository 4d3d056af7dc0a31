"""What a lint says of a part of a message: what it is, where, how sure that is, and the way out."""

from dataclasses import dataclass
from typing import Literal

Kind = Literal[
    "raw-rows",
    "text",
    "per-record",
    "class-counts",
    "few-people",
    "second-order",
    "support-vectors",
    "centroids",
    "identifiers",
    "grows",
    "trees",
    "not-opened",
]
"""What a finding can be of; nothing else is named."""
Certainty = Literal["certain", "likely", "possible"]
"""``certain`` if the part says so itself, ``likely`` if its values do, ``possible`` if only its size or name does."""
WAYS_OUT: dict[Kind, str] = {
    "raw-rows": "Send a sum or a trained parameter in the place of rows of the data.",
    "text": "Send numbers; texts of a site stay there, and settings need no sentences.",
    "per-record": "Send the mean over the records, with their number, in the place of a value for each.",
    "class-counts": "Send counts with noise or in a secure sum, or the same base score from every client.",
    "few-people": "Leave out cells below the minimum, merge them, or add noise.",
    "second-order": "Send it in a secure sum with enough clients, or with noise; first-order steps need no Hessian.",
    "support-vectors": "Support vectors are records: send the weights of a linear model, or of random features.",
    "centroids": "Send only centroids of enough points, in a secure sum or with noise.",
    "identifiers": "Remove names and keys of persons, or replace them by secret pseudonyms that stay at the site.",
    "grows": "A message of fixed size carries no more of a large site than of a small one: send sums or parameters.",
    "trees": "Trees hold counts of each leaf: mask them, ask for a minimum in each leaf, or use secure histograms.",
    "not-opened": "Send arrays as .npz or safetensors; a pickle or an archive can run code or hide files.",
}
"""What to do about a finding, by its kind."""


@dataclass(frozen=True)
class Finding:
    """A part of a message that may hold more of the data than an update does.

    Attributes:
        kind: what it is of.
        what: what was seen, in words, with the numbers that decided.
        where: the part of the message, by name.
        how_sure: see `Certainty`.

    Example:
        >>> finding = Finding("text", "a text of 212 characters", "documents/0", "certain")
        >>> print(finding.sentence)
        documents/0: a text of 212 characters (certain)
    """

    kind: Kind
    what: str
    where: str
    how_sure: Certainty

    @property
    def way_out(self) -> str:
        """What to do about it."""
        return WAYS_OUT[self.kind]

    @property
    def sentence(self) -> str:
        """Where it is, what it is, and how sure that is."""
        return f"{self.where}: {self.what} ({self.how_sure})"
