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
        Kerkouche, Ács and Fritz, "Client-specific Property Inference against Secure Aggregation in Federated Learning",
        WPES 2023, arXiv:2303.03908, and its code, whose ridge is 5. The paper asks for one bit of each client, and
        decides it by a likelihood after the regression; shares are the regression's own output.
    """

    name = "ridge-on-sums"
    references = ("PROLIN, ridge regression",)
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
        taking, observed = [], []
        for part in each_round_of_sums(view, participants, self.most):
            size = int(participants.examples.double().mean().round())
            taking.append(part.taking)
            observed.append(self._shares(part.view, size, generator) * part.taking.sum(1, keepdim=True))
        found = []
        for rounds in with_progress(range(1, len(taking) + 1)):
            design, sums = torch.cat(taking[:rounds]), torch.cat(observed[:rounds])
            gram = design.T @ design + (self.ridge + _EXACT) * torch.eye(design.shape[1], dtype=torch.float64)
            found.append(torch.linalg.solve(gram, design.T @ sums))
        return self.estimate(participants, torch.stack(found))

    def _shares(self, view: RoundView, size: int, generator: torch.Generator) -> Tensor:
        """``(G, K)`` output of the round's linear model for its sums, as if each were of one client."""
        known = auxiliary(view, layer_change(view).bias.shape[1])
        sizes = torch.full((self.simulated,), size)
        shares = random_compositions(self.simulated, len(known.by_class), generator=generator)
        counts = largest_remainders(shares, sizes)
        examples = draw_examples(known, counts, generator=generator)
        parts = list(simulated_changes(view, (known.images, known.labels), examples, generator=generator))
        changes = {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
        own, given = (_flat(view, deltas) for deltas in (changes, dict(view.deltas)))
        mean = own.mean(0)
        own = own - mean
        gram = own @ own.T
        gram.diagonal().add_(_EXACT * gram.diagonal().mean())
        shares = counts / sizes[:, None].double()
        middle = shares.mean(0)
        weights = torch.linalg.solve(gram, shares - middle)
        found: Tensor = middle + (given - mean) @ own.T @ weights
        return found


class SeparatedUpdates(SharesAttack):
    """Class shares by `output-counts` on updates that least squares separates from the sums.

    If clients sent the same update in every round, the sums would be linear equations for the updates themselves; the
    ones of least norm that fit are attacked as if they were sent in the first round.

    Threat model: that of `RoundsToReveal`.

    References:
        Lam, Wei, Cao, Brooks and Tseng, "Gradient Disaggregation: Breaking Privacy in Federated Learning by
        Reconstructing the User Participant Matrix", ICML 2021, arXiv:2106.06089, section 4. The paper first infers who
        took part, from how often each client did; here the server knows.
    """

    name = "separated-updates"
    references = ("Gradient Disaggregation",)

    def run(self, view: History, *, generator: torch.Generator) -> SharesOverRounds:
        participants = Participants.of(view)
        rounds = list(each_round_of_sums(view, participants, self.most))
        found = []
        for count in with_progress(range(1, len(rounds) + 1)):
            found.append(self._shares(rounds[:count], participants, generator))
        return self.estimate(participants, torch.stack(found))

    def _shares(self, rounds: list[RoundSums], participants: Participants, generator: torch.Generator) -> Tensor:
        design, first = torch.cat([one.weights for one in rounds]), rounds[0].view
        inverse = torch.linalg.pinv(design)
        deltas = {}
        for name in first.deltas:
            sums = torch.cat([one.view.deltas[name] for one in rounds])
            deltas[name] = (inverse @ sums.flatten(1).double()).reshape(-1, *sums.shape[1:]).to(sums)
        one_each = first.select(torch.zeros(len(participants.clients), dtype=torch.int64))
        of_clients = {"example_counts": participants.examples, "pseudonyms": participants.clients}
        view = RoundView(**one_each.common() | of_clients | {"deltas": deltas})
        shares, _ = OutputCounts().linear_shares(view, generator=generator)
        return shares


def _flat(view: RoundView, deltas: dict[str, Tensor]) -> Tensor:
    change = layer_change(view, deltas)
    return torch.cat([part.flatten(1) for part in change], dim=1).double()
