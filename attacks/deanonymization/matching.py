"""Matching: do two anonymous messages, or an anonymous and a known one, come from one user?"""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch

from attacks.base import Attack
from attacks.deanonymization.fingerprint import FingerprintAttack, LinkedFingerprint
from attacks.deanonymization.messages import known_view, read_messages, seen_only, unit
from attacks.deanonymization.reidentification import Reidentification, ReidMLP
from attacks.estimates import Estimate, MatchingEstimate, asked_pairs
from protocol.threat_model import ThreatModel
from protocol.view import USERS, ServerView, ViewError
from ranges import PositiveInt

_NEEDS = (*Reidentification.threat_model.needs, "pairs")


class MatchingAttack(Attack):
    """An attack that says of pairs of messages whether they come from one user."""

    family = "matching"
    scope = "recording"
    estimates: ClassVar[type[Estimate]] = MatchingEstimate
    tells = "which other updates come from the same user"


class MatchingChance(MatchingAttack):
    """A uniform number for every pair (section 4.4, matching (i)).

    Threat model: a server that looks at no message.
    """

    name = "matching-chance"
    baseline = True
    threat_model = ThreatModel(sees="nothing of the devices", knows="nothing", needs=("pairs",))

    def run(self, view: ServerView, *, generator: torch.Generator) -> MatchingEstimate:
        return MatchingEstimate(scores=torch.rand(len(asked_pairs(view)), generator=generator))


class MatchingMLP(MatchingAttack, ReidMLP):
    """Probability that one user sent both: ``max_u P[i = u] P[j = u]`` by `ReidMLP` (section 4.4, matching (ii)).

    Threat model: that of `ReidSVM`; the question is which of given pairs of messages match.

    Args:
        layers: see `Reidentification`.
        epochs: see `ReidMLP`.
        accelerator: where to run, as Lightning names it.
        devices: on how many of them.

    References:
        Orekondy, Oh, Zhang, Schiele and Fritz, "Gradient-Leaks: Understanding and Controlling Deanonymization in
        Federated Learning", 2018, arXiv:1805.05838.
    """

    name = "matching-mlp"
    references = ("Gradient-Leaks, section 4.4",)
    threat_model = dataclasses.replace(Reidentification.threat_model, needs=_NEEDS)

    def run(self, view: ServerView, *, generator: torch.Generator) -> MatchingEstimate:
        messages = read_messages(view, self.layers)
        asked = torch.cat([messages.anonymous, messages.known])
        ready = self.prepared(dataclasses.replace(seen_only(messages), anonymous=asked))
        first, second = self.scores(ready, generator=generator)[asked_pairs(view).T]
        return MatchingEstimate(scores=(first * second).amax(1))


@dataclass(frozen=True, kw_only=True)
class MatchingSiamese(MatchingAttack):
    """Siamese network: a distance of messages that is learned from the known devices' (section 4.4, matching (iii)).

    Threat model: that of `ReidSVM`; the question is which of given pairs of messages match. Users of whom nothing is
    known may be among them.

    Args:
        layers: whose deltas are taken; None for all that are recorded.
        steps: batches of 64 pairs; the paper prints none.
        accelerator: where to run, as Lightning names it.
        devices: on how many of them.

    References:
        Orekondy, Oh, Zhang, Schiele and Fritz, "Gradient-Leaks: Understanding and Controlling Deanonymization in
        Federated Learning", 2018, arXiv:1805.05838.
    """

    name = "matching-siamese"
    references = ("Gradient-Leaks, section 4.4",)
    cost = "one training of the network for all messages"
    threat_model = dataclasses.replace(Reidentification.threat_model, needs=_NEEDS)

    layers: Sequence[str] | None = None
    steps: PositiveInt = 1000
    accelerator: str = "auto"
    devices: PositiveInt = 1

    def run(self, view: ServerView, *, generator: torch.Generator) -> MatchingEstimate:
        from modules.attackers.identity_nets import SiameseNet
        from modules.attackers.trainer import fit_quietly

        messages = read_messages(view, self.layers)
        labels = torch.unique(known_view(view).priors[USERS], return_inverse=True)[1]
        counts = labels.bincount()
        if int((counts > 0).sum()) < 2 or int(counts.max()) < 2:
            raise ViewError("expected two known users, one of them with two messages, got fewer")
        known = unit(messages.known)
        net = SiameseNet(known, labels, steps=self.steps, generator=generator)
        fit_quietly(net, accelerator=self.accelerator, devices=self.devices, max_steps=self.steps)
        net.cpu().eval()
        with torch.no_grad():
            first, second = net.embed(torch.cat([unit(messages.anonymous), known]))[asked_pairs(view).T]
            return MatchingEstimate(scores=net(first, second))


class MatchingFingerprint(MatchingAttack, FingerprintAttack):
    """Probability that one known user sent both: ``sum_u P[i = u] P[j = u]`` by `FingerprintAttack`.

    Threat model: that of `FingerprintAttack`, as are the arguments; the question is which of given pairs of messages match.
    """

    name = "matching-fingerprint"
    threat_model = dataclasses.replace(
        FingerprintAttack.threat_model, needs=(*FingerprintAttack.threat_model.needs, "pairs")
    )

    def run(self, view: ServerView, *, generator: torch.Generator) -> MatchingEstimate:
        messages = read_messages(view, self.layers)
        asked = torch.cat([messages.anonymous, messages.known])
        single = self.log_probabilities(view, seen_only(messages), asked, generator)
        whose = (view.pseudonyms, known_view(view).pseudonyms)
        both = torch.split(single, [len(own) for own in whose])
        named = torch.cat([self.probabilities(part, own) for part, own in zip(both, whose, strict=True)])
        first, second = named[asked_pairs(view).T]
        return MatchingEstimate(scores=(first * second).sum(1))


class LinkedMatchingFingerprint(MatchingFingerprint):
    """`MatchingFingerprint`, with the evidence of all messages under one pseudonym summed.

    Threat model: that of `MatchingFingerprint`, as are the arguments; a device keeps its pseudonym over the rounds.
    """

    name = "matching-fingerprint-linked"
    threat_model = dataclasses.replace(MatchingFingerprint.threat_model, sees=LinkedFingerprint.threat_model.sees)
    linked = True
