"""Devices that fit a profile, by contrast with a device of other people's examples of any kind."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from fedleak.attacks.re_identification.estimates import UNSEEN, IdentityEstimate
from fedleak.attacks.re_identification.messages import (
    check_known,
    class_means,
    known_view,
    read_messages,
    round_means,
    unit,
)
from fedleak.attacks.re_identification.reidentification import IdentityAttack, Reidentification
from fedleak.attacks.re_identification.simulated import FEATURES, OWNERS
from fedleak.attacks.re_identification.word_counts import BIAS, word_laws
from fedleak.client.algorithm import ExampleAlgorithm
from fedleak.core.errors import ViewError
from fedleak.core.estimates import Estimate
from fedleak.core.history import History
from fedleak.core.ranges import PositiveFloat
from fedleak.core.threat_model import ThreatModel


@dataclass(frozen=True, kw_only=True)
class ProfileContrast(IdentityAttack):
    """Inner product of a message with the mean message of a profile's device minus that of the contrast.

    Machines that learn to separate profiles from one another do not separate any of them from everybody else. Here,
    ``<x - mean x, m_profile - m_contrast>`` does: x is the message's unit vector, the mean is that of the anonymous
    messages of its round, and the m are means of the known devices' messages, centred in the same way. The contrast is
    the hold-out of the view, whose examples are of any kind.

    Threat model: passive server, all rounds; it has examples of each profile, and others, of people outside the
    training, and devices of its own that train on these data.

    References:
        This project; the question is that of [Orekondy18], section 6.1.1.

    Example:
        >>> import torch
        >>> from fedleak.attacks.re_identification import ProfileContrast
        >>> from fedleak.attacks.re_identification.toy import toy
        >>> view, truth = toy(hold_out=True)
        >>> estimate = ProfileContrast()(view, generator=torch.Generator().manual_seed(0))
        >>> round(float(estimate.score(view, truth).metrics["ap"].mean()), 2)
        1.0
    """

    name = "profile-contrast"
    threat_model = ThreatModel(
        sees="the deltas of some layers of every message, each round",
        knows="examples of each profile and others, of people outside the training, on devices of its own",
        needs=Reidentification.threat_model.needs,
    )

    layers: Sequence[str] | None = None

    def run(self, view: History, *, generator: torch.Generator) -> Estimate:
        messages = read_messages(view, self.layers)
        known_devices = known_view(view)
        check_contrast(messages.users)
        anonymous = unit(messages.anonymous)
        known_vectors = unit(messages.known)
        # m_profile - m_contrast, of known messages centred by the anonymous ones of their round; the contrast is first.
        centred = known_vectors - round_means(anonymous, view, known_devices)
        means = class_means(centred, messages.labels, len(messages.users))
        contrasts = means[1:] - means[0]
        scores = (anonymous - round_means(anonymous, view, view)) @ contrasts.T
        return IdentityEstimate(scores=scores, users=messages.users[1:])


@dataclass(frozen=True, kw_only=True)
class ProfileWords(IdentityAttack):
    """Log-likelihood ratio of a device's word counts under a profile's word frequencies and under the contrast's.

    The counts are those of `WordCounts`, up to what all devices of a round have in common:
    ``sum_w (delta_w / (r T) - mean) log(q_profile,w / q_contrast,w)``.

    Threat model: passive server, all rounds; it has examples of each profile, and others, of people outside the
    training, and devices of its own that train on these data. It knows the devices' algorithm, which is plain gradient
    descent.

    References:
        This project; see `WordCounts`.

    Example:
        >>> import torch
        >>> from fedleak.attacks.re_identification import ProfileWords
        >>> from fedleak.attacks.re_identification.toy import toy
        >>> view, truth = toy(hold_out=True)
        >>> estimate = ProfileWords()(view, generator=torch.Generator().manual_seed(0))
        >>> round(float(estimate.score(view, truth).metrics["ap"].mean()), 2)
        0.9
    """

    name = "profile-words"
    threat_model = ThreatModel(
        sees="the delta of the last layer's bias, each round",
        knows="the devices' training algorithm; texts of each profile and others, of people outside the training",
        needs=("known", f"deltas:{BIAS}", ExampleAlgorithm, *(f"auxiliary:{n}" for n in (FEATURES, OWNERS))),
    )

    smoothing: PositiveFloat = 500.0

    def run(self, view: History, *, generator: torch.Generator) -> Estimate:
        check_known(known_view(view).deltas[BIAS])
        laws = word_laws(view)
        learner = view.require(ExampleAlgorithm)
        check_contrast(laws.users)
        # delta_w / (r T) minus its mean over the round, times log(q_profile / q_contrast); the contrast comes first.
        rates = learner.learning_rate * learner.steps(view.example_counts)[:, None]
        changes = view.deltas[BIAS].double() / rates
        log_frequencies = laws.smoothed(self.smoothing).clamp(min=torch.finfo(torch.float64).tiny).log()
        log_ratios = log_frequencies[1:] - log_frequencies[0]
        scores = (changes - round_means(changes, view, view)) @ log_ratios.T
        return IdentityEstimate(scores=scores, users=laws.users[1:])


def check_contrast(users: torch.Tensor) -> None:
    """Raises `ViewError` unless there are a hold-out, first, and others among the known users."""
    if len(users) < 2 or int(users[0]) != UNSEEN:
        raise ViewError("expected known devices of profiles and of a hold-out, got no hold-out; see the profile prior")
