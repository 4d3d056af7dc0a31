"""Do two messages come from one user? By the names that simulated fingerprints give to both; ours."""

from collections.abc import Sequence

import torch
from torch import Tensor

from attacks.base import Attack, ServerView, ThreatModel
from attacks.deanonymization.estimates import PAIRS, MatchingEstimate, asked_pairs
from attacks.deanonymization.fingerprint import KNOWS, SEES, Fingerprint, over_pseudonyms
from attacks.deanonymization.messages import known_view, read_messages, seen_only


class MatchingFingerprint(Attack):
    """Are two messages of one user? The chance that both are of the same known user, ``sum_u P[i = u] P[j = u]``.

    Args:
        layers: see `Fingerprint`.
        rounds: see `Fingerprint`.
        parts: see `Fingerprint`.
    """

    name = "matching-fingerprint"
    threat_model = ThreatModel(sees=SEES, knows=KNOWS, needs=(*Fingerprint.threat_model.needs, f"auxiliary:{PAIRS}"))
    estimates = MatchingEstimate

    def __init__(self, *, layers: Sequence[str] | None = None, rounds: int = 2, parts: int = 4) -> None:
        self.machine = Fingerprint(layers=layers, rounds=rounds, parts=parts)

    def run(self, view: ServerView, *, generator: torch.Generator) -> MatchingEstimate:
        """See `Attack.run`."""
        messages = read_messages(view, self.machine.layers)
        asked = torch.cat([messages.anonymous, messages.known])
        single = self.machine.log_probabilities(view, seen_only(messages), asked, generator)
        told = self.probabilities(view, single)
        first, second = asked_pairs(view).T
        return MatchingEstimate(scores=(told[first] * told[second]).sum(1))

    def probabilities(self, view: ServerView, single: Tensor) -> Tensor:
        """``(V + P, U)`` of all messages, from what each says by itself."""
        return single.exp()


class LinkedMatchingFingerprint(MatchingFingerprint):
    """The same, each message named by the evidence of all messages under its pseudonym.

    Threat model: that of `MatchingFingerprint`, and a device keeps its pseudonym over the rounds.
    """

    name = "matching-fingerprint-linked"
    threat_model = ThreatModel(
        sees=f"{SEES}; which messages bear one pseudonym", knows=KNOWS, needs=MatchingFingerprint.threat_model.needs
    )

    def probabilities(self, view: ServerView, single: Tensor) -> Tensor:
        """See `MatchingFingerprint.probabilities`."""
        whose = (view.pseudonyms, known_view(view).pseudonyms)
        both = torch.split(single, [len(own) for own in whose])
        return torch.cat([over_pseudonyms(part, own) for part, own in zip(both, whose, strict=True)])
