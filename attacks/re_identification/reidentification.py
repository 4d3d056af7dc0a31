"""Re-identification attacks: classifiers of users, trained on the messages of known devices."""

import abc
import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedleak.attacks.linear_algebra import in_span
from fedleak.attacks.re_identification.estimates import IdentityEstimate
from fedleak.attacks.re_identification.messages import (
    Messages,
    known_view,
    mean_over_pseudonyms,
    noise_scales,
    read_messages,
    unit,
)
from fedleak.attacks.re_identification.simulated import PARTS, simulated_parts
from fedleak.core.attack import Attack, Variants
from fedleak.core.errors import ViewError
from fedleak.core.estimates import Estimate
from fedleak.core.history import History
from fedleak.core.ranges import NonNegativeInt, PositiveFloat, PositiveInt
from fedleak.core.threat_model import ThreatModel


class IdentityAttack(Attack):
    """Base class of attacks that infer the users of anonymous messages."""

    family = "re-identification"
    estimates: ClassVar[type[Estimate]] = IdentityEstimate


@dataclass(frozen=True, kw_only=True)
class Reidentification(IdentityAttack):
    """Base class of classifiers that learn from known devices' messages; a subclass implements `scores`.

    The paper's machines learn from the known messages, and score one message at a time. Three options give them what
    attacks of this project have; tables ask for them by the variants.

    Args:
        layers: layers whose deltas are used, e.g. ``lstm``; None for all that are recorded.
        simulated: number of recorded rounds from whose global models further training messages are simulated, of four
            parts of each user's data, as in `FingerprintAttack`.
        noisy_copies: number of copies of each training message, to which the noise that the devices declare is added;
            an adversary who adapts to noise trains on these instead.
        linked: whether the scores of all messages under a pseudonym are averaged.

    Variants:
        simulated: learns from simulated messages too.
        adaptive: adapts to the noise that devices declare.
        linked: scores all messages under a pseudonym together.
    """

    cost = "one training of the classifier for all messages"
    threat_model = ThreatModel(
        sees="the deltas of some layers of every message, each round",
        knows="data of every user, on devices of its own that take part",
        needs=("deltas", "known"),
    )
    variants: ClassVar[Variants] = {
        "simulated": {"simulated": 1, "listed": False},
        "adaptive": {"noisy_copies": 4, "listed": False},
        "linked": {"linked": True, "listed": False},
    }

    layers: Sequence[str] | None = None
    simulated: NonNegativeInt = 0
    noisy_copies: NonNegativeInt = 0
    linked: bool = False

    def run(self, view: History, *, generator: torch.Generator) -> Estimate:
        messages = self.learned_from(view, read_messages(view, self.layers), generator)
        check_users(messages)
        scores = self.scores(self.prepared(messages), generator=generator)
        return IdentityEstimate(scores=self.over_messages(scores, view.pseudonyms), users=messages.users)

    def learned_from(self, view: History, messages: Messages, generator: torch.Generator) -> Messages:
        """The messages with the training messages of the options `simulated` and `noisy_copies`."""
        if self.simulated:
            simulated = simulated_parts(view, self.layers, rounds=self.simulated, parts=PARTS)
            columns, is_used = simulated.places(messages.users)
            messages = dataclasses.replace(
                messages,
                known=torch.cat([messages.known, simulated.vectors[is_used]]),
                labels=torch.cat([messages.labels, columns[is_used]]),
            )
        if self.noisy_copies:
            # Only the noise that the known messages lack.
            known_scales = noise_scales(known_view(view), self.layers)
            missing_variance = noise_scales(view, self.layers).square() - known_scales.square()
            missing = missing_variance.clamp(min=0).sqrt()
            copies = messages.known.repeat(self.noisy_copies, 1)
            copies += missing * torch.randn(copies.shape, generator=generator)
            messages = dataclasses.replace(messages, known=copies, labels=messages.labels.repeat(self.noisy_copies))
        return messages

    def over_messages(self, scores: Tensor, pseudonyms: Tensor) -> Tensor:
        """``(V, U)`` scores of the messages, averaged over a pseudonym if they are linked."""
        if self.linked:
            return mean_over_pseudonyms(scores, pseudonyms)
        return scores

    def prepared(self, messages: Messages) -> Messages:
        """The classifier's input: unit vectors, in coordinates of the known messages' span."""
        known_coordinates, anonymous = in_span(unit(messages.known), unit(messages.anonymous))
        return dataclasses.replace(messages, anonymous=anonymous, known=known_coordinates)

    @abc.abstractmethod
    def scores(self, messages: Messages, *, generator: torch.Generator) -> Tensor:
        """``(V, U)`` scores of the anonymous messages."""


@dataclass(frozen=True, kw_only=True)
class ReidSVM(Reidentification):
    """Linear one-vs-rest support vector machine; infers the user of a message by the largest signed distance.

    Threat model: passive server, all rounds; it has data of users, and devices of its own that train on these data.

    Further arguments are those of `Reidentification`.

    Args:
        penalty: the machine's C; not given in the paper, 1 is the default of its library.

    References:
        [Orekondy18], section 4.4.

    Example:
        >>> import torch
        >>> from fedleak.attacks.re_identification import ReidSVM
        >>> from fedleak.attacks.re_identification.toy import toy
        >>> view, truth = toy()
        >>> estimate = ReidSVM()(view, generator=torch.Generator().manual_seed(0))
        >>> round(float(estimate.score(view, truth).metrics["ap"].mean()), 2)
        1.0
    """

    name = "reid-svm"
    references: ClassVar[tuple[str, ...]] = ("Gradient-Leaks, section 4.4",)

    penalty: PositiveFloat = 1.0

    def scores(self, messages: Messages, *, generator: torch.Generator) -> Tensor:
        return svm_scores(messages, self.penalty, generator)


@dataclass(frozen=True, kw_only=True)
class ReidKNN(Reidentification):
    """K nearest neighbours; infers the user of a message by the shares of users among the K nearest known messages.

    Threat model: passive server, all rounds; it has data of users, and devices of its own that train on these data.

    Further arguments are those of `Reidentification`.

    Args:
        neighbours: K; 10 in the paper.

    References:
        [Orekondy18], section 4.4.

    Example:
        >>> import torch
        >>> from fedleak.attacks.re_identification import ReidKNN
        >>> from fedleak.attacks.re_identification.toy import toy
        >>> view, truth = toy()
        >>> estimate = ReidKNN()(view, generator=torch.Generator().manual_seed(0))
        >>> round(float(estimate.score(view, truth).metrics["ap"].mean()), 2)
        0.36
    """

    name = "reid-knn"
    references = ("Orekondy18, section 4.4",)

    neighbours: PositiveInt = 10

    def scores(self, messages: Messages, *, generator: torch.Generator) -> Tensor:
        from sklearn.neighbors import KNeighborsClassifier

        machine = KNeighborsClassifier(min(self.neighbours, len(messages.known)))
        machine.fit(messages.known.numpy(), messages.labels.numpy())
        return torch.from_numpy(machine.predict_proba(messages.anonymous.numpy()))


@dataclass(frozen=True, kw_only=True)
class ReidMLP(Reidentification):
    """Multilayer perceptron that classifies messages by user.

    Threat model: passive server, all rounds; it has data of users, and devices of its own that train on these data.

    Further arguments are those of `Reidentification`.

    Args:
        epochs: passes over the known messages; not given in the paper.
        accelerator: Lightning accelerator.
        devices: number of devices of the accelerator that train the perceptron.

    References:
        [Orekondy18], section 4.4 (iv).

    Example:
        >>> import torch
        >>> from fedleak.attacks.re_identification import ReidMLP
        >>> from fedleak.attacks.re_identification.toy import toy
        >>> view, truth = toy()
        >>> estimate = ReidMLP(epochs=60, accelerator="cpu")(view, generator=torch.Generator().manual_seed(0))
        >>> float(estimate.score(view, truth).metrics["ap"].mean()) > 0.9
        True
    """

    name = "reid-mlp"
    references = ("Orekondy18, section 4.4",)

    epochs: PositiveInt = 1000
    accelerator: str = "auto"
    devices: PositiveInt = 1

    def scores(self, messages: Messages, *, generator: torch.Generator) -> Tensor:
        from fedleak.modules.attackers.identity_nets import ReidentificationNet
        from fedleak.modules.attackers.trainer import fit_quietly

        net = ReidentificationNet(
            messages.known, messages.labels, users=len(messages.users), fan_in=messages.whole, generator=generator
        )
        fit_quietly(net, accelerator=self.accelerator, devices=self.devices, max_epochs=self.epochs)
        net.cpu().eval()
        with torch.no_grad():
            probabilities: Tensor = net(messages.anonymous).softmax(1)
        return probabilities

    def over_messages(self, scores: Tensor, pseudonyms: Tensor) -> Tensor:
        """The geometric mean of the probabilities, renormalised, for linked messages."""
        if not self.linked:
            return scores
        logs = scores.double().clamp(min=torch.finfo(torch.float32).tiny).log()
        return mean_over_pseudonyms(logs, pseudonyms).softmax(1)


@dataclass(frozen=True, kw_only=True)
class CentredSVM(ReidSVM):
    """`ReidSVM` on messages without their common component, with scores that are comparable between messages.

    The deltas of all users share a large component, which says nothing about the user and dominates the unit vectors.
    It is estimated as the mean of the known messages' unit vectors and subtracted. The distances of a message from the
    users' planes are then standardised and turned into probabilities, so that a message that is far from all planes
    does not rank before one that is close to one plane only.

    Threat model: passive server, all rounds; it has data of users, and devices of its own that train on these data.

    Further arguments are those of `Reidentification`.

    Args:
        sharpness: factor on the standardised scores before the softmax.

    References:
        This project; it extends the SVM of [Orekondy18], section 4.4.

    Example:
        >>> import torch
        >>> from fedleak.attacks.re_identification import CentredSVM
        >>> from fedleak.attacks.re_identification.toy import toy
        >>> view, truth = toy()
        >>> estimate = CentredSVM()(view, generator=torch.Generator().manual_seed(0))
        >>> round(float(estimate.score(view, truth).metrics["ap"].mean()), 2)
        1.0
    """

    name = "centred-svm"
    references = ()

    sharpness: PositiveFloat = 3.0

    def prepared(self, messages: Messages) -> Messages:
        common = unit(messages.known).mean(0)
        centred = dataclasses.replace(
            messages,
            known=unit(messages.known) - common,
            anonymous=unit(messages.anonymous) - common,
        )
        return super().prepared(centred)

    def scores(self, messages: Messages, *, generator: torch.Generator) -> Tensor:
        return standardised(super().scores(messages, generator=generator), self.sharpness).exp()


def svm_scores(messages: Messages, penalty: float, generator: torch.Generator) -> Tensor:
    """``(V, U)`` signed distances from each user's separating plane."""
    from sklearn.svm import LinearSVC

    check_users(messages)
    machine = LinearSVC(C=penalty, random_state=int(torch.randint(2**31, (), generator=generator)))
    machine.fit(messages.known.numpy(), messages.labels.numpy())
    scores = torch.from_numpy(machine.decision_function(messages.anonymous.numpy()))
    # For two classes, the machine returns the score of the second one only.
    if scores.dim() == 1:
        return torch.stack([-scores, scores], dim=1)
    return scores


def standardised(scores: Tensor, sharpness: float) -> Tensor:
    """``(V, U)`` log-probabilities of the users from scores of any scale."""
    # Over the users: a message far from all of them is not thereby more certain.
    mean = scores.mean(1, keepdim=True)
    spread = scores.std(1, keepdim=True).clamp(min=torch.finfo(scores.dtype).tiny)
    return (sharpness * (scores - mean) / spread).log_softmax(1)


def against_others(scores: Tensor, cohort: Tensor, labels: Tensor, noise: Tensor | float = 0.0) -> Tensor:
    """``(V, U)`` scores of each user, standardised by those that messages of other users get (Z-norm).

    Those are ``cohort (P, U)`` of the known messages, whose users have the columns ``labels (P,)``. `noise` is the
    variance that noise adds to the scores of anonymous messages, ``(U,)`` or one for all.

    References:
        [Auckenthaler00].
    """
    # Mean and variance of a user's scores over the known messages of all others.
    is_of_another = (labels[:, None] != torch.arange(cohort.shape[1])).to(cohort)
    counts = is_of_another.sum(0).clamp(min=1)
    means = (is_of_another * cohort).sum(0) / counts
    variances = (is_of_another * (cohort - means).square()).sum(0) / counts + noise
    deviations = variances.sqrt().clamp(min=torch.finfo(torch.float32).tiny)
    normalised: Tensor = (scores - means) / deviations
    return normalised


def check_users(messages: Messages) -> None:
    """Raises `ViewError` unless there are at least two known users."""
    if len(messages.users) < 2:
        raise ViewError("expected messages of at least two known users, got those of one")
