"""Published attacks on sums over rounds: linear models of the sums with ridge regression, and separated updates."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedleak.attacks.composition.output_counts import OutputCounts
from fedleak.attacks.sums_over_rounds.base import SharesAttack
from fedleak.attacks.sums_over_rounds.estimates import SharesOverRounds
from fedleak.attacks.sums_over_rounds.received_sums import Participants, RoundSums, each_round_of_sums
from fedleak.client.auxiliary_images import auxiliary
from fedleak.client.last_layer import layer_change
from fedleak.client.simulated_clients import draw_examples, random_compositions, simulated_changes
from fedleak.core.attack import Variants
from fedleak.core.history import History
from fedleak.core.largest_remainders import largest_remainders
from fedleak.core.progress import with_progress
from fedleak.core.ranges import AtLeastTwo, NonNegativeFloat
from fedleak.core.threat_model import ThreatModel
from fedleak.core.view import RoundView

_EXACT = 1e-10
"""Ridge of a linear model, over the mean squared change, that only keeps its equations solvable."""


@dataclass(frozen=True, kw_only=True)
class RidgeOnSums(SharesAttack):
    """Class shares by a linear model of each round's sums, and ridge regression of its outputs on participation.

    In each round, least squares on `simulated` clients gives the linear model that maps an update of the last layer to
    its client's shares. As it is linear, its output for a sum is the sum of the clients' shares, and ridge regression
    over the rounds separates them.

    Threat model: that of `RoundsToReveal`, with images of every class.

    Args:
        simulated: number of simulated clients in each round.
        ridge: weight of the squared shares, in squared numbers of rounds of a client.

    Variants:
        least-squares: without a ridge, as the paper's first method. It is the better one for exact sums.

    References:
        [Kerkouche23], and its code, whose ridge is 5. The paper asks for one bit of each client, and decides it by a
        likelihood after the regression; shares are the regression's own output.

    Example:
        >>> import torch
        >>> from fedleak.attacks.sums_over_rounds import RidgeOnSums
        >>> from fedleak.attacks.sums_over_rounds.toy import toy
        >>> view, truth = toy()
        >>> estimate = RidgeOnSums()(view, generator=torch.Generator().manual_seed(0))
        >>> round(float(estimate.score(view, truth).metrics["l1"].mean()), 2)
        0.73
    """

    name = "ridge-on-sums"
    references = ("Kerkouche23, ridge regression",)
    variants: ClassVar[Variants] = {"least-squares": {"ridge": 0.0, "references": ("PROLIN, least squares",)}}
    threat_model = ThreatModel(
        sees=SharesAttack.threat_model.sees,
        knows="the clients' training algorithm, their example counts and images of each class",
        needs=(*SharesAttack.threat_model.needs, "auxiliary:images", "auxiliary:labels", "algorithm"),
    )

    simulated: AtLeastTwo = 200
    ridge: NonNegativeFloat = 5.0

    def run(self, view: History, *, generator: torch.Generator) -> SharesOverRounds:
        participants = Participants.of(view)
        # The model's output for a sum, times the number of its clients: a sum of their shares.
        taking = []
        summed_shares = []
        for part in each_round_of_sums(view, participants, self.most):
            usual_size = int(participants.examples.double().mean().round())
            taking.append(part.taking)
            mean_shares = self._shares(part.view, usual_size, generator)
            summed_shares.append(mean_shares * part.taking.sum(1, keepdim=True))
        # Ridge regression on participation P: (P' P + ridge I)^-1 P' s.
        shares_after = []
        for rounds in with_progress(range(1, len(taking) + 1)):
            design = torch.cat(taking[:rounds])
            sums = torch.cat(summed_shares[:rounds])
            eye = torch.eye(design.shape[1], dtype=torch.float64)
            gram = design.T @ design + (self.ridge + _EXACT) * eye
            shares_after.append(torch.linalg.solve(gram, design.T @ sums))
        return self.estimate(participants, torch.stack(shares_after))

    def _shares(self, view: RoundView, size: int, generator: torch.Generator) -> Tensor:
        """``(G, K)`` output of the round's linear model for its sums, as if each were of one client."""
        images = auxiliary(view, layer_change(view).bias.shape[1])
        # Simulated clients of random composition, with `size` examples each, and their changes of the last layer.
        sizes = torch.full((self.simulated,), size)
        compositions = random_compositions(self.simulated, len(images.by_class), generator=generator)
        counts = largest_remainders(compositions, sizes)
        examples = draw_examples(images, counts, generator=generator)
        parts = list(simulated_changes(view, (images.images, images.labels), examples, generator=generator))
        deltas = {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
        simulated = _flat(view, deltas)
        received = _flat(view, dict(view.deltas))
        # Least squares of the shares on the changes, both about their means. There are more numbers than clients, so
        # it is solved in the space of the clients: X' (X X' + ridge)^-1 Y.
        mean_change = simulated.mean(0)
        simulated = simulated - mean_change
        gram = simulated @ simulated.T
        gram.diagonal().add_(_EXACT * gram.diagonal().mean())
        shares = counts / sizes[:, None].double()
        mean_share = shares.mean(0)
        coefficients = torch.linalg.solve(gram, shares - mean_share)
        predicted: Tensor = mean_share + (received - mean_change) @ simulated.T @ coefficients
        return predicted


class SeparatedUpdates(SharesAttack):
    """Class shares by `output-counts` on updates that least squares separates from the sums.

    If clients sent the same update in every round, the sums would be linear equations for the updates themselves; the
    ones of least norm that fit are attacked as if they were sent in the first round.

    Threat model: that of `RoundsToReveal`.

    References:
        [Lam21], section 4. The paper first infers who took part, from how often each client did; here the server knows.

    Example:
        >>> import torch
        >>> from fedleak.attacks.sums_over_rounds import SeparatedUpdates
        >>> from fedleak.attacks.sums_over_rounds.toy import toy
        >>> view, truth = toy()
        >>> estimate = SeparatedUpdates()(view, generator=torch.Generator().manual_seed(0))
        >>> round(float(estimate.score(view, truth).metrics["l1"].mean()), 2)
        0.61
    """

    name = "separated-updates"
    references = ("Lam21",)

    def run(self, view: History, *, generator: torch.Generator) -> SharesOverRounds:
        participants = Participants.of(view)
        rounds = list(each_round_of_sums(view, participants, self.most))
        shares_after = []
        for count in with_progress(range(1, len(rounds) + 1)):
            shares_after.append(self._shares(rounds[:count], participants, generator))
        return self.estimate(participants, torch.stack(shares_after))

    def _shares(self, rounds: list[RoundSums], participants: Participants, generator: torch.Generator) -> Tensor:
        """``(C, K)`` shares of all clients, from the updates that the sums of these rounds separate."""
        # The updates of least norm that fit: the pseudoinverse of the participation times the sums.
        design = torch.cat([of_round.weights for of_round in rounds])
        inverse = torch.linalg.pinv(design)
        first = rounds[0].view
        deltas = {}
        for name in first.deltas:
            sums = torch.cat([of_round.view.deltas[name] for of_round in rounds])
            separated = inverse @ sums.flatten(1).double()
            deltas[name] = separated.reshape(-1, *sums.shape[1:]).to(sums)
        # A view of the first round, as if each client had sent its separated update.
        one_each = first.select(torch.zeros(len(participants.clients), dtype=torch.int64))
        of_clients = {"example_counts": participants.examples, "pseudonyms": participants.clients}
        view = RoundView(**one_each.common() | of_clients | {"deltas": deltas})
        shares, _ = OutputCounts().linear_shares(view, generator=generator)
        return shares


def _flat(view: RoundView, deltas: dict[str, Tensor]) -> Tensor:
    """``(V, D)`` float64 change of the last layer's weight and bias."""
    change = layer_change(view, deltas)
    return torch.cat([part.flatten(1) for part in change], dim=1).double()
