"""Verification of declared releases: whether the clipping and the noise that clients declare are in their messages."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedleak.attacks.declared_privacy.check_table import rows_of
from fedleak.attacks.declared_privacy.findings import Findings
from fedleak.attacks.declared_privacy.message_tests import CHECKS, WHOLE, MessageTests
from fedleak.attacks.declared_privacy.noised_groups import noised_groups
from fedleak.attacks.declared_privacy.privacy_losses import loss_ratio, privacy_loss, promised_loss, shared_noise
from fedleak.attacks.declared_privacy.reported import Reported
from fedleak.attacks.declared_privacy.senders import Senders
from fedleak.core.attack import Attack
from fedleak.core.errors import ViewError
from fedleak.core.estimates import Detail, Estimate, EstimateError, Scores
from fedleak.core.gaussian_budget import gaussian_epsilon
from fedleak.core.history import History
from fedleak.core.metric import POSITIVE, Metric
from fedleak.core.privacy_ledger import PrivacyLedger
from fedleak.core.ranges import OpenUnitInterval
from fedleak.core.threat_model import ThreatModel
from fedleak.core.view import RoundView, View

_NUMBERS = 2**24
"""Numbers of messages that are tested at once: 64 MiB of float32."""
_CALIBRATED = 1.002
"""Largest ratio of a send's privacy loss to the declared one that rounding may explain."""
_NO_NOISE = 0.1
"""Measured scale, relative to the declared one, below which a parameter counts as sent without noise."""
_DELTA = 1e-5
"""Delta of epsilon where no release declares one."""


@dataclass(frozen=True, kw_only=True)
class ReleaseEstimate(Estimate):
    """What each client's messages show of the releases that it declares.

    Attributes:
        clients: ``(U,)`` pseudonyms.
        epsilon: ``(U,)`` epsilon of replacing a client's data, as sent: with the scale of noise that was declared, or
            the measured one where it is smaller; of a sum, with the noise of all participants. Infinite if a parameter
            was sent without noise, if noise was used twice, or if the update was not clipped as declared.
        declared: ``(U,)`` the same as declared, over all rounds in which the client took part.
        ratio: ``(U,)`` measured over declared scale of the noise; NaN where it could not be measured.
        findings: ``(U,)`` number of findings that concern the client.
        rows: table of all checks.
    """

    inferred = "whether the clipping and the noise that it declares are there"
    truth = ()
    metrics = (
        "epsilon",
        Metric("epsilon-declared", "Epsilon-declared is the same as declared.", leak=False, span=POSITIVE),
        Metric(
            "noise-ratio",
            "The noise ratio is the measured over the declared scale of the noise.",
            leak=False,
            span=POSITIVE,
        ),
        Metric(
            "findings",
            "Findings are the number of violations of the declared release that concern a client.",
            span=(0.0, math.inf),
        ),
    )
    clients: Tensor
    epsilon: Tensor
    declared: Tensor
    ratio: Tensor
    findings: Tensor
    rows: tuple[Detail, ...] = ()

    def check(self, view: View) -> None:
        for name in ("epsilon", "declared", "ratio", "findings"):
            if getattr(self, name).shape != self.clients.shape:
                raise EstimateError(f"{name}: expected shape {tuple(self.clients.shape)}")

    def score(self, view: View, truth: Mapping[str, Tensor]) -> Scores:
        """The measured values themselves: no ground truth is needed."""
        metrics = {"epsilon": self.epsilon, "epsilon-declared": self.declared}
        metrics |= {"noise-ratio": self.ratio, "findings": self.findings}
        return Scores(metrics, units=self.clients, details=self.rows)


@dataclass(frozen=True, kw_only=True, repr=False)
class ReleaseCheck(Attack):
    """Verification of declared releases from the messages alone.

    The noise of a message is compared with the declared noise: its scale, its law, its resolution, and its reuse in
    other messages, parameters and rows. Numbers without noise, parameters outside every release, the order of clip and
    noise, and the clip itself are checked too, and epsilon as sent is computed next to epsilon as declared, composed
    over the rounds of each client.

    The tests hold for every update within the declared clip, so an update is not mistaken for a fault; where it could
    hide one, the table says that the check could not be made. With probability 1 - `alpha` an honest recording has no
    finding at all. A defence that changes a message after its noise without declaring it (`TopK`) is a finding.

    Of a secure sum (`SecureSum`), the noise of all participants together is checked: if `k` of `n` add none, the sum
    has ``(n - k) / n`` of the declared variance. A ledger has the rounds in which clients took part, and what they
    spent.

    Threat model: the server sees the messages and the declared releases. No learner and no ground truth is needed.

    Args:
        alpha: probability of any false finding in an honest recording.
        delta: delta of epsilon; None for the smallest declared delta, or 1e-5.

    References:
        [Dong22], corollary 3.3 (composition).
        [Balle18a], equation 6 (epsilon).

    Example:
        >>> import torch
        >>> from fedleak.attacks.declared_privacy import ReleaseCheck
        >>> from fedleak.attacks.declared_privacy.toy import toy
        >>> view, truth = toy()
        >>> estimate = ReleaseCheck()(view, generator=torch.Generator().manual_seed(0))
        >>> round(float(estimate.score(view, truth).metrics["noise-ratio"].mean()), 2)
        1.0
    """

    name = "release-check"
    family = "declared-privacy"
    threat_model = ThreatModel(
        sees="every client's updates of all rounds",
        knows="what the clients declare to do to an update before they send it",
        needs=("deltas", "releases"),
    )
    estimates = ReleaseEstimate
    cost = "seconds per recording"

    alpha: OpenUnitInterval = 0.01
    delta: OpenUnitInterval | None = None

    def run(self, view: History, *, generator: torch.Generator) -> ReleaseEstimate:
        """Tests all messages in parts of bounded size.

        Raises:
            ViewError: no release has noise, or a delta is the sum of several messages.
        """
        if not any(release.noise_scale > 0 for release in view.releases):
            raise ViewError(f"no release of the recording declares noise{_unchecked_epsilon(view)}")
        findings = Findings(self.alpha, CHECKS)
        tests: dict[tuple[str, ...], MessageTests] = {}
        bare: dict[str, set[int]] = {}
        misread: set[str] = set()
        senders = Senders(sums=any(release.participants > 1 for release in view.releases))
        for listed in _parts(view):
            if listed.updates is not None or listed.messages is not None:
                raise ViewError("its deltas are sums of several messages, of which each has noise of its own")
            # A sum is listed once for each attacked participant, and tested once.
            part, numbers = senders.add(listed)
            if not part.victims:
                continue
            groups, clipped_after_noise = noised_groups(part)
            misread |= clipped_after_noise
            for names, group in groups.items():
                if names not in tests:
                    tests[names] = MessageTests(group, findings, view.victims)
                tests[names].add_round(part, numbers)
            for name in part.deltas:
                if part.noise_scale(name) == 0:
                    is_sent = part.deltas[name].flatten(1).abs().amax(1) > 0
                    bare.setdefault(name, set()).update(numbers[is_sent].tolist())
        reported = Reported(
            findings=findings,
            tests=tests,
            bare={name: sorted(messages) for name, messages in bare.items() if messages},
            misread=sorted(misread),
            miscalibrated=[release for release in view.releases if loss_ratio(release) > _CALIBRATED],
            messages=senders.messages,
            people=senders.people.numpy(),
            places=senders.places.numpy(),
        )
        return self._estimate(view, reported, senders)

    def _estimate(self, view: History, reported: Reported, senders: Senders) -> ReleaseEstimate:
        clients, row = torch.unique(senders.people, return_inverse=True)
        noisy = [release for release in view.releases if release.noise_scale > 0]
        clipped = [release for release in noisy if release.clip is not None]
        without_clip = all(release.clip is None for release in noisy)
        # Privacy loss (sensitivity / sigma)^2 of one message, as sent: over the square of the scale that was measured.
        factor = reported.factors()
        loss = sum(privacy_loss(release) * shared_noise(view, release) for release in clipped)
        is_lost = reported.broken() | (factor < _NO_NOISE) | without_clip
        loss_of_message = np.where(is_lost, math.inf, loss / np.maximum(factor, _NO_NOISE) ** 2)
        # Losses of a client's messages add up.
        loss_of_listed = torch.from_numpy(loss_of_message)[senders.places]
        loss_of_client = torch.zeros(len(clients), dtype=torch.float64).index_add_(0, row, loss_of_listed)
        sends = torch.bincount(row, minlength=len(clients)).double()
        most_sends = 0
        if len(sends):
            most_sends = int(sends.max())
        # The same as declared.
        promised: float = math.inf
        if not without_clip:
            promised = sum(promised_loss(release) * shared_noise(view, release) for release in clipped)
        declared_deltas = [release.delta for release in view.releases if release.delta]
        delta = self.delta or min(declared_deltas, default=_DELTA)
        ledger = PrivacyLedger.of_history(view, precision=promised, delta=delta)
        rows = [
            *rows_of(reported),
            _epsilon_row(loss_of_client, delta, most_sends),
            *ledger.rows(unlisted=_unlisted(view, senders)),
        ]
        ratio_of_listed = torch.from_numpy(reported.ratios())[senders.places]
        mean_ratio = torch.zeros_like(loss_of_client).index_add_(0, row, ratio_of_listed) / sends
        epsilon = [gaussian_epsilon(client_loss, delta) for client_loss in loss_of_client.tolist()]
        return ReleaseEstimate(
            clients=clients,
            epsilon=torch.tensor(epsilon, dtype=torch.float64),
            declared=ledger.epsilon_of(clients),
            ratio=mean_ratio,
            findings=torch.tensor(reported.counts(clients.numpy()), dtype=torch.float64),
            rows=tuple(rows),
        )


def _unchecked_epsilon(view: View) -> str:
    """What is said of an epsilon that is declared without noise; empty without one."""
    declared = [release.epsilon for release in view.releases if release.epsilon is not None]
    if not declared:
        return ""
    return (
        f", so nothing in the messages can be compared with the epsilon of {min(declared):g} that is declared; the"
        " clients that attacks match with their updates test it (docs/theory/prior-and-update.md), and canaries do"
    )


def _epsilon_row(sums: Tensor, delta: float, messages: int) -> Detail:
    """Row with the delta of every epsilon, and the largest number of messages that one covers."""
    measured = None
    if len(sums):
        worst = gaussian_epsilon(float(sums.max()), delta)
        if math.isfinite(worst):
            measured = worst
    return {
        "check": "epsilon",
        "parameter": WHOLE,
        "outcome": "computed",
        "clients": len(sums),
        "text": "Epsilon of the worst client as sent, at this delta, over at most so many messages of a client.",
        "measured": measured,
        "delta": delta,
        "messages": messages,
    }


def _unlisted(view: View, senders: Senders) -> int:
    """Participants of a sum that the recording does not list; 0 without sums."""
    if not senders.sums or not senders.messages or view.participants is not None:
        return 0
    return max(release.participants for release in view.releases) - int(torch.bincount(senders.places).max())


def _parts(view: History) -> Iterator[RoundView]:
    """The messages of each round, in parts of bounded size; clients that sent zero everywhere are left out."""
    for messages in view.each_part():
        numbers = sum(delta[:1].numel() for delta in messages.deltas.values())
        at_once = max(_NUMBERS // max(numbers, 1), 1)
        for rows in torch.arange(messages.victims).split(at_once):  # type: ignore[no-untyped-call]
            part = messages.select(rows)
            is_sent_by_parameter = [delta.flatten(1).abs().amax(1) > 0 for delta in part.deltas.values()]
            is_sent = torch.stack(is_sent_by_parameter).any(0)
            if is_sent.any():
                yield part.select(is_sent.nonzero().flatten())
