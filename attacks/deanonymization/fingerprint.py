"""Simulated fingerprints: whose data would have made this delta? Ours."""

import dataclasses
from collections.abc import Sequence

import torch
from torch import Tensor

from attacks.base import Attack, ServerView, ThreatModel
from attacks.deanonymization.estimates import UNSEEN, IdentityEstimate
from attacks.deanonymization.messages import Messages, read_messages, unit
from attacks.deanonymization.published import REIDENTIFICATION, svm_scores
from attacks.deanonymization.shared_part import standardised
from attacks.deanonymization.simulation import PRIOR, Simulated, simulated_parts
from attacks.deanonymization.span import in_span

SEES = "the deltas of some layers of every message, each round, and the global models"
KNOWS = "the devices' training algorithm, and data of every user beforehand"


class Fingerprint(Attack):
    """A linear machine that learns from what known users' data make of the very global models that were sent.

    (1) What all messages share names nobody and is taken out: of the known messages their mean, of simulated ones the
    mean of their round. (2) The server need not wait until a device of its own is sampled: it trains on parts of every
    user's data from recorded global models. Parts of one user's data differ as its two devices' data do, which the
    messages of one device in several rounds do not. (3) Directions in which the parts of a user differ are shortened
    (whitening), so that a machine which is learned from known and simulated messages relies on the others. (4)
    Distances are made probabilities message by message, so that messages compare.

    Threat model: passive server, all rounds; it has data of users and knows how devices train.

    Args:
        layers: whose deltas are taken; None for all that are recorded.
        rounds: recorded rounds from whose global models is simulated.
        parts: into which each user's data are cut for it.
        penalty: C of the machine.
        floor: added to the variance of every direction before whitening, as a multiple of their mean.
        sharpness: see `CentredSVM`.
    """

    name = "fingerprint"
    threat_model = ThreatModel(sees=SEES, knows=KNOWS, needs=(*REIDENTIFICATION.needs, "learner", *PRIOR))
    estimates = IdentityEstimate

    def __init__(
        self,
        *,
        layers: Sequence[str] | None = None,
        rounds: int = 2,
        parts: int = 4,
        penalty: float = 1.0,
        floor: float = 0.3,
        sharpness: float = 3.0,
    ) -> None:
        positive = {"rounds": rounds, "penalty": penalty, "floor": floor, "sharpness": sharpness}
        for name, value in positive.items():
            if value <= 0:
                raise ValueError(f"expected {name} > 0, got {value}")
        if parts < 2:
            raise ValueError(f"expected parts of at least 2, got {parts}")
        self.layers = layers
        self.rounds = rounds
        self.parts = parts
        self.penalty = penalty
        self.floor = floor
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
        mean = unit(messages.known).mean(0)
        learned, labels = _with_simulated(messages, simulated, mean)
        training, others = in_span(learned, unit(unit(asked) - mean))
        own = training[len(messages.known) :]
        shorter = whitening(own, labels[len(messages.known) :], self.floor)
        ready = dataclasses.replace(
            messages, known=unit(training @ shorter), anonymous=unit(others @ shorter), labels=labels
        )
        return standardised(svm_scores(ready, self.penalty, generator), self.sharpness)


class LinkedFingerprint(Fingerprint):
    """The same, with the evidence of all messages under one pseudonym summed; the arguments are `Fingerprint`'s.

    A device keeps its pseudonym over the rounds. What misleads in one of its messages, the order of its mini-batches
    and the state of the model, misleads less in their sum.
    """

    name = "fingerprint-linked"
    threat_model = ThreatModel(
        sees=f"{SEES}; which messages bear one pseudonym", knows=KNOWS, needs=Fingerprint.threat_model.needs
    )

    def run(self, view: ServerView, *, generator: torch.Generator) -> IdentityEstimate:
        """See `Attack.run`."""
        messages = read_messages(view, self.layers)
        single = self.log_probabilities(view, messages, messages.anonymous, generator)
        return IdentityEstimate(scores=over_pseudonyms(single, view.pseudonyms), users=messages.users)


def over_pseudonyms(log_probabilities: Tensor, pseudonyms: Tensor) -> Tensor:
    """``(V, U)`` probabilities from the evidence of all messages under a message's pseudonym.

    Args:
        log_probabilities: ``(V, U)`` of each message by itself.
        pseudonyms: ``(V,)``.
    """
    _, place = torch.unique(pseudonyms, return_inverse=True)
    total = log_probabilities.new_zeros(int(place.max()) + 1, log_probabilities.shape[1])
    return total.index_add_(0, place, log_probabilities).softmax(1)[place]


def whitening(vectors: Tensor, labels: Tensor, floor: float) -> Tensor:
    """The inverse root of how vectors of one label vary about their mean.

    Args:
        vectors: ``(S, R)``.
        labels: ``(S,)`` int64.
        floor: see `Fingerprint`.

    Returns:
        ``(R, R)``, to multiply vectors with.
    """
    _, place, counts = torch.unique(labels, return_inverse=True, return_counts=True)
    means = vectors.new_zeros(len(counts), vectors.shape[1]).index_add_(0, place, vectors) / counts[:, None]
    rest = (vectors - means[place]).double()
    variances, directions = torch.linalg.eigh(rest.T @ rest / len(rest))
    scales = (variances.clamp(min=0) + floor * variances.mean()).rsqrt()
    shorter: Tensor = (directions * scales) @ directions.T
    return shorter.to(vectors)


def _with_simulated(messages: Messages, simulated: Simulated, mean: Tensor) -> tuple[Tensor, Tensor]:
    """Known messages without their shared part, then the simulated ones of the same users; and whose they are.

    Users of the hold-out stand under one name, the first; without a hold-out, a user without messages is left out.
    """
    place = torch.searchsorted(messages.users, simulated.users).clamp(max=len(messages.users) - 1)
    found = messages.users[place] == simulated.users
    kept = found | (messages.users[0] == UNSEEN)
    labels = torch.where(found, place, 0)[kept]
    vectors = torch.cat([unit(unit(messages.known) - mean), simulated.vectors[kept]])
    return vectors, torch.cat([messages.labels, labels])
