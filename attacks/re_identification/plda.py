"""Probabilistic linear discriminant analysis of messages, with the noise that the devices declare."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedleak.attacks.linear_algebra import in_span, shrunk_eigenvalues
from fedleak.attacks.re_identification.estimates import IdentityEstimate
from fedleak.attacks.re_identification.messages import (
    class_means,
    known_view,
    mean_over_pseudonyms,
    noise_scales,
    read_messages,
    round_means,
)
from fedleak.attacks.re_identification.reidentification import (
    IdentityAttack,
    Reidentification,
    against_others,
    check_users,
    standardised,
)
from fedleak.attacks.re_identification.simulated import NEEDS, PARTS, simulated_parts
from fedleak.client.algorithm import ExampleAlgorithm
from fedleak.core.attack import Variants
from fedleak.core.estimates import Estimate
from fedleak.core.history import History
from fedleak.core.ranges import PositiveFloat, PositiveInt
from fedleak.core.threat_model import ThreatModel


@dataclass(frozen=True, kw_only=True)
class PLDA(IdentityAttack):
    """Gaussian likelihood of a message around each user's mean, with covariance within users and declared noise.

    A message per local step is ``x = o_r + m_u + e + n``: what all devices have in common in round r, the user's mean,
    the variation between parts of a user's data, of covariance W, and the declared noise of variance s^2. (1) The means
    m_u and W are those of simulated devices that hold parts of a user's data, and of the known messages; (2) o_r is the
    mean of the known messages in the round after their users' means are subtracted; (3) the score of user u is
    ``-1/2 (x - o_r - m_u)' (W + s^2 I)^-1 (x - o_r - m_u)``. Without noise this is whitening; for much noise it becomes
    the matched filter ``<x, m_u>``, which no unit length of a noisy vector spoils.

    Threat model: passive server, all rounds; it has data of users, and devices of its own that train on these data. It
    knows the devices' training algorithm and the noise that they declare.

    Further arguments are those of `FingerprintAttack`.

    Args:
        linked: whether all messages under a pseudonym are averaged, and the variance of their noise divided by their
            number.

    Variants:
        linked: scores all messages under a pseudonym together.

    References:
        This project; [Ioffe06].

    Example:
        >>> import torch
        >>> from fedleak.attacks.re_identification import PLDA
        >>> from fedleak.attacks.re_identification.toy import toy
        >>> view, truth = toy()
        >>> estimate = PLDA()(view, generator=torch.Generator().manual_seed(0))
        >>> round(float(estimate.score(view, truth).metrics["ap"].mean()), 2)
        1.0
    """

    name = "plda"
    with_prior = "rank"
    cost = "`rounds` times `parts` simulated trainings per known user"
    threat_model = ThreatModel(
        sees="the deltas of some layers of every message, each round, the global models, and the declared noise",
        knows="the devices' training algorithm, and data of every user, on devices of its own that take part",
        needs=(*Reidentification.threat_model.needs, ExampleAlgorithm, *NEEDS),
    )
    variants: ClassVar[Variants] = {"linked": {"linked": True, "listed": False}}

    layers: Sequence[str] | None = None
    rounds: PositiveInt = 2
    parts: PositiveInt = PARTS
    floor: PositiveFloat = 0.1
    sharpness: PositiveFloat = 3.0
    linked: bool = False

    def run(self, view: History, *, generator: torch.Generator) -> Estimate:
        known_devices = known_view(view)
        learner = view.require(ExampleAlgorithm)
        messages = read_messages(view, self.layers)
        check_users(messages)
        users = messages.users
        labels = messages.labels
        # (1) Users' means m_u, of simulated devices without the mean of their round; all messages per local step.
        simulated_messages = simulated_parts(view, self.layers, rounds=self.rounds, parts=self.parts)
        columns, is_used = simulated_messages.places(users)
        simulated = simulated_messages.over_steps(learner).centred()[is_used]
        simulated_labels = columns[is_used]
        anonymous = messages.anonymous / learner.steps(view.example_counts)[:, None]
        known_vectors = messages.known / learner.steps(known_devices.example_counts)[:, None]
        # (2) Without o_r, the mean of the known messages in the round after their users' means are subtracted.
        without_user_mean = known_vectors - class_means(simulated, simulated_labels, len(users))[labels]
        anonymous = anonymous - round_means(without_user_mean, known_devices, view)
        known_vectors = known_vectors - round_means(without_user_mean, known_devices, known_devices)
        # Variance s^2 of the declared noise, per step and message; the mean of linked messages has less.
        noise = noise_scales(view, self.layers).square().mean() / learner.steps(view.example_counts).square()
        if self.linked:
            anonymous = mean_over_pseudonyms(anonymous, view.pseudonyms)
            _, device, counts = torch.unique(view.pseudonyms, return_inverse=True, return_counts=True)
            noise = noise / counts[device]
        # Means of simulated and known messages together, and their covariance W within users.
        training, queries = in_span(torch.cat([simulated, known_vectors]), anonymous)
        training_labels = torch.cat([simulated_labels, labels])
        means = class_means(training, training_labels, len(users)).double()
        rest = training.double() - means[training_labels]
        rest[: len(simulated)] *= (2 / self.parts) ** 0.5  # a device has more data than a part of them
        within = rest.T @ rest / len(rest)
        # (3) Log-likelihoods, standardised by those of other users' known messages.
        gaussian = Gaussian(means, within, self.floor)
        scores = gaussian.log_likelihoods(queries.double(), noise.double())
        known_coordinates = training[len(simulated) :].double()
        cohort = gaussian.log_likelihoods(known_coordinates, noise.mean().expand(len(labels)))
        scores = against_others(scores, cohort, labels, gaussian.variances(noise.mean()))
        return IdentityEstimate(scores=standardised(scores, self.sharpness).exp(), users=users)


class Gaussian:
    """Gaussian likelihoods with one covariance and noise of equal variance in all directions.

    Args:
        means: ``(U, R)`` float64 means.
        within: ``(R, R)`` covariance.
        floor: variance that is added to all directions, as a multiple of the mean variance.
    """

    def __init__(self, means: Tensor, within: Tensor, floor: float) -> None:
        self.spread, self.directions = shrunk_eigenvalues(within, factor=1.0, added=floor)
        self.means = means @ self.directions

    def log_likelihoods(self, vectors: Tensor, noise: Tensor) -> Tensor:
        """``(V, U)`` log-likelihoods of ``(V, R)`` with noise of variance ``(V,)``, up to a constant of each row."""
        # In the eigenvectors of W: x' P m - m' P m / 2 with the diagonal precision P = 1 / (spread + noise).
        precision = 1 / (self.spread + noise[:, None])
        matched = (precision * (vectors @ self.directions)) @ self.means.T
        scores: Tensor = matched - 0.5 * precision @ self.means.square().T
        return scores

    def variances(self, noise: Tensor) -> Tensor:
        """``(U,)`` variance that noise of a variance adds to the log-likelihoods."""
        # Noise n adds n' P m, of variance noise |P m|^2.
        variance: Tensor = noise * (self.means / (self.spread + noise)).square().sum(1)
        return variance
