"""Re-identification: classifiers that learn from known devices' messages which user an anonymous message is of."""

import abc
import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from attacks.base import Attack
from attacks.deanonymization.messages import Messages, in_span, known_view, read_messages, unit
from attacks.estimates import Estimate, IdentityEstimate
from protocol.threat_model import ThreatModel
from protocol.view import USERS, ServerView, ViewError
from ranges import PositiveFloat, PositiveInt


class IdentityAttack(Attack):
    """An attack that names the users of anonymous messages."""

    family = "re-identification"
    scope = "recording"
    estimates: ClassVar[type[Estimate]] = IdentityEstimate
    tells = "which of the users that it knows sent it"


class IdentityChance(IdentityAttack):
    """Every user with the same probability, in random order (section 4.4, re-identification (i)).

    Threat model: a server that knows who takes part and looks at no message.
    """

    name = "chance"
    baseline = True
    threat_model = ThreatModel(sees="nothing of the devices", knows="who takes part", needs=("known",))

    def run(self, view: ServerView, *, generator: torch.Generator) -> IdentityEstimate:
        users = torch.unique(known_view(view).priors[USERS])
        return IdentityEstimate(scores=torch.rand(view.victims, len(users), generator=generator), users=users)


@dataclass(frozen=True, kw_only=True)
class Reidentification(IdentityAttack):
    """A classifier of known devices' messages, asked about the others. A subclass gives its scores.

    Args:
        layers: whose deltas are taken, e.g. ``lstm``; None for all that are recorded.
    """

    cost = "one training of the classifier for all messages"
    threat_model = ThreatModel(
        sees="the deltas of some layers of every message, each round",
        knows="data of every user beforehand, on devices of its own that take part",
        needs=("deltas", "known"),
    )

    layers: Sequence[str] | None = None

    def run(self, view: ServerView, *, generator: torch.Generator) -> Estimate:
        messages = read_messages(view, self.layers)
        check_users(messages)
        scores = self.scores(self.prepared(messages), generator=generator)
        return IdentityEstimate(scores=scores, users=messages.users)

    def prepared(self, messages: Messages) -> Messages:
        """What the classifier is given: vectors of length one, in coordinates of the known ones' span."""
        known, anonymous = in_span(unit(messages.known), unit(messages.anonymous))
        return dataclasses.replace(messages, anonymous=anonymous, known=known)

    @abc.abstractmethod
    def scores(self, messages: Messages, *, generator: torch.Generator) -> Tensor:
        """``(V, U)`` scores of the anonymous messages."""


@dataclass(frozen=True, kw_only=True)
class ReidSVM(Reidentification):
    """Linear support vector machine of each user against the rest; the score is the signed distance.

    Threat model: passive server, all rounds; it has data of users, and lets devices of its own train on them.

    Args:
        layers: see `Reidentification`.
        penalty: C of the machine; the paper prints none, and 1 is the default of its library.

    References:
        Orekondy, Oh, Zhang, Schiele and Fritz, "Gradient-Leaks: Understanding and Controlling Deanonymization in
        Federated Learning", 2018, arXiv:1805.05838.
    """

    name = "reid-svm"
    references: ClassVar[tuple[str, ...]] = ("Gradient-Leaks, section 4.4",)

    penalty: PositiveFloat = 1.0

    def scores(self, messages: Messages, *, generator: torch.Generator) -> Tensor:
        return svm_scores(messages, self.penalty, generator)


@dataclass(frozen=True, kw_only=True)
class ReidKNN(Reidentification):
    """K nearest neighbours: the share of a user among the K nearest known messages.

    Threat model: that of `ReidSVM`.

    Args:
        layers: see `Reidentification`.
        neighbours: K; the paper's is 10.

    References:
        Orekondy, Oh, Zhang, Schiele and Fritz, "Gradient-Leaks: Understanding and Controlling Deanonymization in
        Federated Learning", 2018, arXiv:1805.05838.
    """

    name = "reid-knn"
    references = ("Gradient-Leaks, section 4.4",)

    neighbours: PositiveInt = 10

    def scores(self, messages: Messages, *, generator: torch.Generator) -> Tensor:
        from sklearn.neighbors import KNeighborsClassifier

        machine = KNeighborsClassifier(min(self.neighbours, len(messages.known)))
        machine.fit(messages.known.numpy(), messages.labels.numpy())
        return torch.from_numpy(machine.predict_proba(messages.anonymous.numpy()))


@dataclass(frozen=True, kw_only=True)
class ReidMLP(Reidentification):
    """Multilayer perceptron that classifies messages by user (section 4.4, re-identification (iv)).

    Threat model: that of `ReidSVM`.

    Args:
        layers: see `Reidentification`.
        epochs: passes over the known messages; the paper prints none.
        accelerator: where to run, as Lightning names it.
        devices: on how many of them.

    References:
        Orekondy, Oh, Zhang, Schiele and Fritz, "Gradient-Leaks: Understanding and Controlling Deanonymization in
        Federated Learning", 2018, arXiv:1805.05838.
    """

    name = "reid-mlp"
    references = ("Gradient-Leaks, section 4.4",)

    epochs: PositiveInt = 1000
    accelerator: str = "auto"
    devices: PositiveInt = 1

    def scores(self, messages: Messages, *, generator: torch.Generator) -> Tensor:
        from modules.attackers.identity_nets import ReidentificationNet
        from modules.attackers.trainer import fit_quietly

        net = ReidentificationNet(
            messages.known, messages.labels, users=len(messages.users), whole=messages.whole, generator=generator
        )
        fit_quietly(net, accelerator=self.accelerator, devices=self.devices, max_epochs=self.epochs)
        net.cpu().eval()
        with torch.no_grad():
            probabilities: Tensor = net(messages.anonymous).softmax(1)
        return probabilities


@dataclass(frozen=True, kw_only=True)
class CentredSVM(ReidSVM):
    """The published machine on messages without their shared part, its scores made comparable between messages.

    All deltas of a training point the same way, towards what all users write. That part names nobody, and because
    vectors are brought to length one it takes room from the part that does. It is estimated as the mean of the known
    messages, each of length one first, because it grows with the number of a device's examples. Then each message's
    distances from the users' planes are standardised and made probabilities, so that a message which is far from all
    planes does not go before one that is near one and far from the others.

    Threat model: that of `ReidSVM`.

    Args:
        layers: see `Reidentification`.
        penalty: see `ReidSVM`.
        sharpness: the standardised scores are multiplied by it before they are made probabilities.
    """

    name = "centred-svm"
    references = ()

    sharpness: PositiveFloat = 3.0

    def prepared(self, messages: Messages) -> Messages:
        mean = unit(messages.known).mean(0)
        known, anonymous = (unit(vectors) - mean for vectors in (messages.known, messages.anonymous))
        return super().prepared(dataclasses.replace(messages, known=known, anonymous=anonymous))

    def scores(self, messages: Messages, *, generator: torch.Generator) -> Tensor:
        return standardised(super().scores(messages, generator=generator), self.sharpness).exp()


def svm_scores(messages: Messages, penalty: float, generator: torch.Generator) -> Tensor:
    """``(V, U)`` signed distances from each user's separating plane.

    Raises:
        ViewError: there is one user only, from whom no plane separates anybody.
    """
    from sklearn.svm import LinearSVC

    check_users(messages)
    machine = LinearSVC(C=penalty, random_state=int(torch.randint(2**31, (), generator=generator)))
    machine.fit(messages.known.numpy(), messages.labels.numpy())
    scores = torch.from_numpy(machine.decision_function(messages.anonymous.numpy()))
    # Of two classes the machine gives one number, of the second.
    return torch.stack([-scores, scores], dim=1) if scores.dim() == 1 else scores


def standardised(scores: Tensor, sharpness: float) -> Tensor:
    """``(V, U)`` log-probabilities of the users from scores of any scale."""
    spread = scores.std(1, keepdim=True).clamp(min=torch.finfo(scores.dtype).tiny)
    return (sharpness * (scores - scores.mean(1, keepdim=True)) / spread).log_softmax(1)


def check_users(messages: Messages) -> None:
    """Raises `ViewError` if the messages are of one user only."""
    if len(messages.users) < 2:
        raise ViewError("expected messages of two known users at least, got those of one")
