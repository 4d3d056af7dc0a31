"""Names that public taxonomies give to the questions of attacks and to the adversaries who ask them."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Taxonomy:
    """Names of one question, or of what a server does, in four public taxonomies; None where none fits.

    NIST names goals. ATLAS and AISVS name the same goals for an adversary who queries a finished model; neither has a
    name for one who reads updates. The letter says what the adversary knows and does, not what it infers.

    Attributes:
        nist: attack of NIST AI 100-2 E2025, such as ``NISTAML.033`` (membership inference).
        atlas: technique of MITRE ATLAS 5.6, such as ``AML.T0024.000`` (infer training data membership).
        aisvs: section or requirement of OWASP AISVS 1.0, such as ``v1.0-C11.2.5``.
        letter: threat model, A to H, of "SoK: Gradient Inversion Attacks in Federated Learning" (USENIX Security 2025).

    Example:
        >>> Taxonomy(nist="NISTAML.033", letter="D").names
        ('NISTAML.033', 'D')
    """

    nist: str | None = None
    atlas: str | None = None
    aisvs: str | None = None
    letter: str | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The names that fit, in the order of the attributes."""
        return tuple(name for name in (self.nist, self.atlas, self.aisvs, self.letter) if name)


NONE_FITS = Taxonomy()
MEMBERSHIP = Taxonomy(nist="NISTAML.033", atlas="AML.T0024.000", aisvs="v1.0-C11.2.5")
RECONSTRUCTION = Taxonomy(nist="NISTAML.032", atlas="AML.T0024.001", aisvs="v1.0-C11.2")
PROPERTY = Taxonomy(nist="NISTAML.034", atlas="AML.T0024.000")
"""Properties of training data as a whole; the ATLAS technique covers them: "global characteristics of the data"."""

TAXONOMY: Mapping[str, Taxonomy] = {
    "interactions": RECONSTRUCTION,
    "recommendation": RECONSTRUCTION,
    "ranking": RECONSTRUCTION,
    "images": RECONSTRUCTION,
    "words": RECONSTRUCTION,
    "reconstruction": RECONSTRUCTION,
    "trees": RECONSTRUCTION,
    "membership": MEMBERSHIP,
    "record-membership": MEMBERSHIP,
    "source": MEMBERSHIP,
    "composition": PROPERTY,
    "property": PROPERTY,
    "attributes": Taxonomy(nist="NISTAML.034", atlas="AML.T0024.000", aisvs="v1.0-C11.2"),
    "declared-privacy": Taxonomy(aisvs="v1.0-C11.2.4"),
    "identifiability": NONE_FITS,
    "linkability": NONE_FITS,
    "matching": NONE_FITS,
    "re-identification": NONE_FITS,
    "manipulated-model": Taxonomy(nist="NISTAML.032", atlas="AML.T0024.001", aisvs="v1.0-C11.2", letter="F"),
    "sums-over-rounds": NONE_FITS,
    "released-model": Taxonomy(nist="NISTAML.031", atlas="AML.T0024", aisvs="v1.0-C11.3"),
    "participants": NONE_FITS,
    "eavesdropping": NONE_FITS,
    "collusion": NONE_FITS,
}
"""Names by family of attacks, and by class of attack that has no family here; without the letter, which is the
attack's."""

KNOWLEDGE: Mapping[str, frozenset[str]] = {
    "E": frozenset({"priors"}),
    "D": frozenset({"auxiliary", "known"}),
    "C": frozenset({"algorithm"}),
    "B": frozenset({"served", "lists", "features", "releases"}),
}
"""Fields of a server view by the first passive threat model that has them: priors are the distribution of a client's
data, auxiliary data and known users are surrogate data, the algorithm has the details of the training."""
MANIPULATING: Mapping[str, str] = {"A": "F", "B": "F", "C": "F", "D": "G"}
"""The active threat model with the knowledge of a passive one; none has that of E."""


def passive_letter(fields: Collection[str]) -> str:
    """Letter of the weakest passive adversary who has these fields of a server view.

    Example:
        >>> passive_letter({"deltas", "model"}), passive_letter({"deltas", "algorithm", "auxiliary"})
        ('A', 'D')
    """
    # From the adversary with most knowledge to the one with least: the first that a field needs is the weakest.
    for letter, knowledge in KNOWLEDGE.items():
        if knowledge & {*fields}:
            return letter
    return "A"
