"""Class shares of single clients from sums over rounds."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedleak.attacks.sums_over_rounds.base import (
    SharesAttack,
    class_sums,
    lengths,
    predicted_widths,
    shuffled_participants,
)
from fedleak.attacks.sums_over_rounds.estimates import SharesOverRounds
from fedleak.attacks.sums_over_rounds.received_sums import Participants
from fedleak.attacks.sums_over_rounds.tracking import Z95, Posterior, posterior
from fedleak.attacks.sums_over_rounds.whole_numbers import (
    at_least_zero,
    is_refuted,
    whole_numbers_of,
    within_common_error,
)
from fedleak.core.attack import Variants
from fedleak.core.history import History
from fedleak.core.progress import with_progress


@dataclass(frozen=True, kw_only=True)
class RoundsToReveal(SharesAttack):
    """Class shares of each client by linear equations: who took part in a sum, and the shares behind it.

    Secure aggregation shows the server only sums, but it addressed the participants. With exact class shares x_t of the
    sum of round t and the weights P_t of its participants, ``x_t = P_t theta`` has one solution theta, the clients'
    shares, as soon as P has as many independent rows as there are clients; for a single client, as soon as its unit
    vector is in the row space. Before, and where the sums have errors or the data change, the clients' shares have the
    normal law of `tracking.posterior`, whose spread, error and drift are the most likely ones. Negative shares are
    excluded, and counts that are certain are whole numbers.

    An error that the sums of all rounds have in common does not average out and leaves no residual: it moves all
    clients alike. The error that `output-counts` predicts of a single sum counts as one. Where counts that the
    equations give exactly are no whole numbers, there is a larger one of unknown size; nothing is certain then, and the
    intervals hold for any such error (`whole_numbers.within_common_error`). They do not hold for an error that differs
    from round to round by more than the likeliest law has, nor for wrong participants.

    Threat model: passive server; sees the sums of several rounds and knows who took part in each, because it addressed
    them. Pseudonyms that change with every round hide that. Knows what `output-counts` knows.

    Variants:
        shuffled: control: the participants of each round are drawn anew, so that the equations are about other clients.

    References:
        This project. [Kerkouche23], and [Lam21], solve such equations for other quantities.

    Example:
        >>> import torch
        >>> from fedleak.attacks.sums_over_rounds import RoundsToReveal
        >>> from fedleak.attacks.sums_over_rounds.toy import toy
        >>> view, truth = toy()
        >>> estimate = RoundsToReveal()(view, generator=torch.Generator().manual_seed(0))
        >>> round(float(estimate.score(view, truth).metrics["l1"].mean()), 2)
        0.44
    """

    name = "rounds-to-reveal"
    exact = True
    variants: ClassVar[Variants] = {"shuffled": {"shuffled": True, "baseline": True, "control": True}}

    shuffled: bool = False

    def run(self, view: History, *, generator: torch.Generator) -> SharesOverRounds:
        participants = Participants.of(view)
        sums, _ = class_sums(view, participants, self.most, generator=generator)
        if self.shuffled:
            count = len(participants.clients)
            sums = shuffled_participants(sums, [torch.randperm(count, generator=generator) for _ in sums.weights])
        shares_after = []
        halves_after = []
        reported_after = lengths(self.after, len(sums.weights))
        law = None
        for rounds in with_progress(range(1, len(sums.weights) + 1)):
            received = sums.first(rounds)
            # The most likely law takes long to find; between the reported rounds that of the last one stands.
            of_clients, law = posterior(received, None if rounds in reported_after else law)
            shares, half = bounded(of_clients.with_common_error(received.common_error), participants.examples)
            shares_after.append(shares)
            halves_after.append(half)
        widths = None
        if not self.shuffled:  # the prediction is of the true participants
            widths = predicted_widths(sums, sums.observed[0].shape[1])
        return self.estimate(
            participants,
            torch.stack(shares_after),
            half=torch.stack(halves_after),
            predicted=widths,
        )


def bounded(law: Posterior, examples: Tensor) -> tuple[Tensor, Tensor]:
    """Shares ``(C, K)`` that are not negative, and whole numbers of examples where certain; half the 95 % intervals."""
    if is_refuted(law, examples):
        return within_common_error(law, examples)
    shares = at_least_zero(law)
    shares = shares / shares.sum(1, keepdim=True).clamp(min=1e-12)
    shares, _ = whole_numbers_of(law, shares, examples)
    return shares, Z95 * law.deviation
