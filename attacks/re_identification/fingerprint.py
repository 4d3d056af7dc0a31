"""Simulated fingerprints: deltas that the known users' data would produce from the recorded global models."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedleak.attacks.linear_algebra import covariance_within, in_span, whitening
from fedleak.attacks.re_identification.estimates import IdentityEstimate
from fedleak.attacks.re_identification.messages import Messages, read_messages, unit
from fedleak.attacks.re_identification.reidentification import (
    IdentityAttack,
    Reidentification,
    standardised,
    svm_scores,
)
from fedleak.attacks.re_identification.simulated import NEEDS, PARTS, simulated_parts
from fedleak.core.attack import Variants
from fedleak.core.estimates import Estimate
from fedleak.core.history import History
from fedleak.core.ranges import PositiveFloat, PositiveInt
from fedleak.core.threat_model import ThreatModel


@dataclass(frozen=True, kw_only=True)
class FingerprintAttack(IdentityAttack):
    """Linear machine trained on simulated updates of the known users, computed from the recorded global models.

    (1) The component that all messages share is subtracted: the mean of the known messages, and for simulated ones the
    mean of their round. (2) The server does not have to wait until its own devices are sampled: it trains from recorded
    global models on parts of each user's data. Two parts differ like the data of a user's two devices do; the messages
    of one device in several rounds do not. (3) Directions in which the parts of a user differ are shrunk (whitening).
    (4) The scores of each message are turned into probabilities, so that they are comparable between messages.

    Threat model: passive server, all rounds; it has data of users and knows the devices' training algorithm.

    Args:
        rounds: number of recorded rounds from whose global models updates are simulated.
        parts: number of parts into which each user's data are split.
        floor: added to the variance of every direction before whitening, as a multiple of the mean variance.
        linked: whether the log-probabilities of all messages under a pseudonym are summed.

    Variants:
        linked: a device keeps its pseudonym over the rounds, and its messages are scored together: errors due to the
            order of mini-batches and the state of the model average out.

    References:
        This project; it extends the SVM of [Orekondy18], section 4.4.

    Example:
        >>> import torch
        >>> from fedleak.attacks.re_identification import FingerprintAttack
        >>> from fedleak.attacks.re_identification.toy import toy
        >>> view, truth = toy()
        >>> estimate = FingerprintAttack()(view, generator=torch.Generator().manual_seed(0))
        >>> round(float(estimate.score(view, truth).metrics["ap"].mean()), 2)
        1.0
    """

    name = "fingerprint"
    with_prior = "rank"
    cost = "`rounds` times `parts` simulated trainings per known user"
    threat_model = ThreatModel(
        sees="the deltas of some layers of every message, each round, and the global models",
        knows="the devices' training algorithm, and data of every user",
        needs=(*Reidentification.threat_model.needs, *NEEDS),
    )
    variants: ClassVar[Variants] = {
        "linked": {
            "linked": True,
            "threat_model": dataclasses.replace(threat_model, sees=f"{threat_model.sees}; their pseudonyms"),
        }
    }

    layers: Sequence[str] | None = None
    rounds: PositiveInt = 2
    parts: PositiveInt = PARTS
    penalty: PositiveFloat = 1.0
    floor: PositiveFloat = 0.3
    sharpness: PositiveFloat = 3.0
    linked: bool = False

    def run(self, view: History, *, generator: torch.Generator) -> Estimate:
        messages = read_messages(view, self.layers)
        single = self.log_probabilities(view, messages, messages.anonymous, generator)
        return IdentityEstimate(scores=self.probabilities(single, view.pseudonyms), users=messages.users)

    def probabilities(self, single: Tensor, pseudonyms: Tensor) -> Tensor:
        """``(V, U)`` probabilities of the users, from the log-probabilities of single messages."""
        if self.linked:
            return over_pseudonyms(single, pseudonyms)
        return single.exp()

    def log_probabilities(
        self, view: History, messages: Messages, queries: Tensor, generator: torch.Generator
    ) -> Tensor:
        """``(A, U)`` log-probabilities of the users for messages ``(A, D)``."""
        simulated = simulated_parts(view, self.layers, rounds=self.rounds, parts=self.parts)
        columns, is_used = simulated.places(messages.users)
        # (1) Without the common component, at unit length.
        common = unit(messages.known).mean(0)
        known_vectors = unit(unit(messages.known) - common)
        simulated_units = dataclasses.replace(simulated, vectors=unit(simulated.vectors))
        simulated_vectors = unit(simulated_units.centred())
        query_vectors = unit(unit(queries) - common)
        # (2) Learn from the known messages and from the simulated ones.
        learned = torch.cat([known_vectors, simulated_vectors[is_used]])
        labels = torch.cat([messages.labels, columns[is_used]])
        training, coordinates = in_span(learned, query_vectors)
        # (3) Only the simulated devices hold parts of a user's data, which show how far a user's devices differ.
        first_simulated = len(messages.known)
        within = covariance_within(training[first_simulated:], labels[first_simulated:])
        whiten = whitening(within, factor=1.0, added=self.floor).to(training)
        whitened = dataclasses.replace(
            messages,
            known=unit(training @ whiten),
            anonymous=unit(coordinates @ whiten),
            labels=labels,
        )
        # (4) Comparable between messages.
        return standardised(svm_scores(whitened, self.penalty, generator), self.sharpness)


def over_pseudonyms(log_probabilities: Tensor, pseudonyms: Tensor) -> Tensor:
    """``(V, U)`` probabilities from the log-probabilities of all messages under a pseudonym ``(V,)``, summed."""
    _, device = torch.unique(pseudonyms, return_inverse=True)
    total = log_probabilities.new_zeros(int(device.max()) + 1, log_probabilities.shape[1])
    return total.index_add_(0, device, log_probabilities).softmax(1)[device]
