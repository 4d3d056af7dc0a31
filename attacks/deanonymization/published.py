"""The published re-identification by a linear support vector machine and by nearest neighbours (section 4.4)."""

import abc
import dataclasses
from collections.abc import Sequence

import torch
from sklearn.neighbors import KNeighborsClassifier
from sklearn.svm import LinearSVC
from torch import Tensor

from attacks.base import Attack, ServerView, ThreatModel, ViewError
from attacks.deanonymization.estimates import IdentityEstimate
from attacks.deanonymization.messages import Messages, read_messages, unit
from attacks.deanonymization.span import in_span

REIDENTIFICATION = ThreatModel(
    sees="the deltas of some layers of every message, each round",
    knows="data of every user beforehand, on devices of its own that take part",
    needs=("deltas", "known"),
)


class Reidentification(Attack):
    """A classifier of known devices' messages, asked about the others. A subclass gives its scores.

    Threat model: passive server, all rounds; it has data of users, and lets devices of its own train on them.

    Args:
        layers: whose deltas are taken, e.g. ``lstm``; None for all that are recorded.
    """

    threat_model = REIDENTIFICATION
    estimates = IdentityEstimate

    def __init__(self, *, layers: Sequence[str] | None = None) -> None:
        self.layers = layers

    def run(self, view: ServerView, *, generator: torch.Generator) -> IdentityEstimate:
        """See `Attack.run`."""
        messages = read_messages(view, self.layers)
        _check_users(messages)
        scores = self.scores(self.prepared(view, messages), generator=generator)
        return IdentityEstimate(scores=scores, users=messages.users)

    def prepared(self, view: ServerView, messages: Messages) -> Messages:
        """What the classifier is given: vectors of length one, in coordinates of the known ones' span."""
        known, anonymous = in_span(unit(messages.known), unit(messages.anonymous))
        return dataclasses.replace(messages, anonymous=anonymous, known=known)

    @abc.abstractmethod
    def scores(self, messages: Messages, *, generator: torch.Generator) -> Tensor:
        """``(V, U)`` scores of the anonymous messages."""


class ReidSVM(Reidentification):
    """A linear support vector machine for each user against the rest; the score is the signed distance.

    Args:
        layers: see `Reidentification`.
        penalty: C of the machine; the paper prints none, and 1 is the default of its library.
    """

    name = "reid-svm"

    def __init__(self, *, layers: Sequence[str] | None = None, penalty: float = 1.0) -> None:
        super().__init__(layers=layers)
        if penalty <= 0:
            raise ValueError(f"expected penalty > 0, got {penalty}")
        self.penalty = penalty

    def scores(self, messages: Messages, *, generator: torch.Generator) -> Tensor:
        """See `Reidentification.scores`."""
        return svm_scores(messages, self.penalty, generator)


class ReidKNN(Reidentification):
    """The share of a user among the K nearest known messages.

    Args:
        layers: see `Reidentification`.
        neighbours: K; the paper's is 10.
    """

    name = "reid-knn"

    def __init__(self, *, layers: Sequence[str] | None = None, neighbours: int = 10) -> None:
        super().__init__(layers=layers)
        if neighbours < 1:
            raise ValueError(f"expected neighbours of at least 1, got {neighbours}")
        self.neighbours = neighbours

    def scores(self, messages: Messages, *, generator: torch.Generator) -> Tensor:
        """See `Reidentification.scores`."""
        machine = KNeighborsClassifier(min(self.neighbours, len(messages.known)))
        machine.fit(messages.known.numpy(), messages.labels.numpy())
        return torch.from_numpy(machine.predict_proba(messages.anonymous.numpy()))


def svm_scores(messages: Messages, penalty: float, generator: torch.Generator) -> Tensor:
    """``(V, U)`` signed distances from each user's separating plane.

    Raises:
        ViewError: there is one user only, from whom no plane separates anybody.
    """
    _check_users(messages)
    machine = LinearSVC(C=penalty, random_state=int(torch.randint(2**31, (), generator=generator)))
    machine.fit(messages.known.numpy(), messages.labels.numpy())
    scores = torch.from_numpy(machine.decision_function(messages.anonymous.numpy()))
    # Of two classes the machine gives one number, of the second.
    return torch.stack([-scores, scores], dim=1) if scores.dim() == 1 else scores


def _check_users(messages: Messages) -> None:
    if len(messages.users) < 2:
        raise ViewError("expected messages of two known users at least, got those of one")
