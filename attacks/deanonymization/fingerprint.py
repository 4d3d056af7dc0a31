"""Simulated fingerprints: whose data would have made this delta? Ours."""

import dataclasses
from collections.abc import Sequence

import torch
from torch import Tensor

from attacks.base import Attack, ServerView, ThreatModel
from attacks.deanonymization.estimates import PAIRS, IdentityEstimate, MatchingEstimate, asked_pairs
from attacks.deanonymization.messages import Messages, read_messages, seen_only, unit
from attacks.deanonymization.published import REIDENTIFICATION, svm_scores
from attacks.deanonymization.shared_part import standardised
from attacks.deanonymization.simulation import PRIOR, Simulated, simulated_parts
from attacks.deanonymization.span import in_span

_SEES = "the deltas of some layers of every message, each round, and the global models"
_KNOWS = "the devices' training algorithm, and data of every user beforehand"


class Fingerprint(Attack):
    """A linear machine that learns from what known users' data make of the very global models that were sent.

    (1) What all messages share names nobody and is taken out: of the known messages their mean, of simulated ones the
    mean of their round. (2) The server need not wait until a device of its own is sampled: it trains on parts of every
    user's data from recorded global models. Parts of one user's data differ as its two devices' data do, so a machine
    that tells users apart across parts has learned to overlook what differs by chance. (3) Distances are made
    probabilities message by message, so that messages compare.

    Threat model: passive server, all rounds; it has data of users and knows how devices train.

    Args:
        layers: whose deltas are taken; None for all that are recorded.
        rounds: recorded rounds from whose global models is simulated.
        parts: into which each user's data are cut for it.
        penalty: C of the machine.
        sharpness: see `CentredSVM`.
    """

    name = "fingerprint"
    threat_model = ThreatModel(sees=_SEES, knows=_KNOWS, needs=(*REIDENTIFICATION.needs, "learner", *PRIOR))
    estimates = IdentityEstimate

    def __init__(
        self,
        *,
        layers: Sequence[str] | None = None,
        rounds: int = 3,
        parts: int = 4,
        penalty: float = 1.0,
        sharpness: float = 3.0,
    ) -> None:
        for name, value in {"rounds": rounds, "parts": parts, "penalty": penalty, "sharpness": sharpness}.items():
            if value <= 0:
                raise ValueError(f"expected {name} > 0, got {value}")
        self.layers = layers
        self.rounds = rounds
        self.parts = parts
        self.penalty = penalty
        self.sharpness = sharpness

    def run(self, view: ServerView, *, generator: torch.Generator) -> IdentityEstimate:
        """See `Attack.run`."""
        messages = read_messages(view, self.layers)
        scores = self.log_probabilities(view, messages, messages.anonymous, generator).exp()
        return IdentityEstimate(scores=scores, users=messages.users)

    def log_probabilities(
        self, view: ServerView, messages: Messages, asked: Tensor, generator: torch.Generator
    ) -> Tensor:
        """``(A, U)`` of the users of `messages`, for vectors ``(A, D)``."""
        simulated = simulated_parts(view, self.layers, rounds=self.rounds, parts=self.parts, generator=generator)
        learned = _with_simulated(messages, simulated)
        known, others = in_span(unit(learned.known), unit(asked - messages.known.mean(0)))
        ready = dataclasses.replace(learned, known=known, anonymous=others)
        return standardised(svm_scores(ready, self.penalty, generator), self.sharpness)


class LinkedFingerprint(Fingerprint):
    """The same, with the evidence of all messages under one pseudonym summed; the arguments are `Fingerprint`'s.

    A device keeps its pseudonym over the rounds. What misleads in one of its messages, the order of its mini-batches
    and the state of the model, misleads less in their sum.
    """

    name = "fingerprint-linked"
    threat_model = ThreatModel(
        sees=f"{_SEES}; which messages bear one pseudonym", knows=_KNOWS, needs=Fingerprint.threat_model.needs
    )

    def run(self, view: ServerView, *, generator: torch.Generator) -> IdentityEstimate:
        """See `Attack.run`."""
        messages = read_messages(view, self.layers)
        single = self.log_probabilities(view, messages, messages.anonymous, generator)
        return IdentityEstimate(scores=over_pseudonyms(single, view.pseudonyms), users=messages.users)


class MatchingFingerprint(Attack):
    """Are two messages of one user? The chance that both are of the same known user, ``sum_u P[i = u] P[j = u]``.

    Args:
        layers: see `Fingerprint`.
        rounds: see `Fingerprint`.
        parts: see `Fingerprint`.
    """

    name = "matching-fingerprint"
    threat_model = ThreatModel(sees=_SEES, knows=_KNOWS, needs=(*Fingerprint.threat_model.needs, f"auxiliary:{PAIRS}"))
    estimates = MatchingEstimate

    def __init__(self, *, layers: Sequence[str] | None = None, rounds: int = 3, parts: int = 4) -> None:
        self.machine = Fingerprint(layers=layers, rounds=rounds, parts=parts)

    def run(self, view: ServerView, *, generator: torch.Generator) -> MatchingEstimate:
        """See `Attack.run`."""
        messages = read_messages(view, self.machine.layers)
        asked = torch.cat([messages.anonymous, messages.known])
        told = self.machine.log_probabilities(view, seen_only(messages), asked, generator).exp()
        first, second = asked_pairs(view).T
        return MatchingEstimate(scores=(told[first] * told[second]).sum(1))


def over_pseudonyms(log_probabilities: Tensor, pseudonyms: Tensor) -> Tensor:
    """``(V, U)`` probabilities from the evidence of all messages under a message's pseudonym.

    Args:
        log_probabilities: ``(V, U)`` of each message by itself.
        pseudonyms: ``(V,)``.
    """
    _, place = torch.unique(pseudonyms, return_inverse=True)
    total = log_probabilities.new_zeros(int(place.max()) + 1, log_probabilities.shape[1])
    return total.index_add_(0, place, log_probabilities).softmax(1)[place]


def _with_simulated(messages: Messages, simulated: Simulated) -> Messages:
    """The known messages without their shared part, and the simulated ones of the same users; of a hold-out as well.

    Users of the hold-out stand under one name among the messages, and under their own among what is simulated.
    """
    place = torch.searchsorted(messages.users, simulated.users).clamp(max=len(messages.users) - 1)
    found = messages.users[place] == simulated.users
    # The first name is `UNSEEN` where there is a hold-out; without one, a user without messages is left out.
    unseen = int(messages.users[0]) < 0
    labels = torch.where(found, place, 0)
    kept = found | unseen
    return dataclasses.replace(
        messages,
        known=torch.cat([messages.known - messages.known.mean(0), simulated.vectors[kept]]),
        labels=torch.cat([messages.labels, labels[kept]]),
    )
