"""Links between messages of different rounds: the estimate, the base of its attacks, and the baseline."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedleak.core.attack import Attack
from fedleak.core.errors import ViewError
from fedleak.core.estimates import Estimate, EstimateError, Scores, check_tensor
from fedleak.core.history import History
from fedleak.core.threat_model import ThreatModel
from fedleak.core.view import View

MOST_MESSAGES = 512
"""Largest number of messages that are compared with each other."""
_TRIPLES = 2**22
"""Comparisons of a pair of one client with pairs of others that are in memory at a time."""


@dataclass(frozen=True, kw_only=True)
class LinkEstimate(Estimate):
    """How likely two messages of different rounds come from the same client.

    Attributes:
        messages: ``(M,)`` numbers of the compared messages in the view.
        scores: ``(M, M)`` symmetric, higher means more likely; ignored for two messages of one round.
    """

    inferred = "which updates of other rounds the client sent, even if names change with every round"
    truth = ("clients",)
    metrics = ("auc",)
    messages: Tensor
    scores: Tensor

    def check(self, view: View) -> None:
        check_tensor("scores", self.scores, (len(self.messages), len(self.messages)))
        if not bool(torch.isin(self.messages, torch.arange(view.victims)).all()):
            raise EstimateError(f"messages: expected numbers below {view.victims}")

    def score(self, view: View, truth: Mapping[str, Tensor]) -> Scores:
        """AUC of each client with messages in two rounds or more, and its jackknife pseudo-values.

        For two messages of a client and one of another client in another round than the first, it is the share of such
        triples in which the first two score higher than the first and the third; ties count half. All clients share
        the others' messages, so the intervals are of the pseudo-values, from the AUC without a client.

        Raises:
            ViewError: no client, or every client, has such a triple.
        """
        assert isinstance(view, History)
        rounds = view.sent_in[self.messages]
        clients, owner = torch.unique(truth["clients"][self.messages], return_inverse=True)
        is_other_round = rounds[:, None] != rounds
        is_same_client = owner[:, None] == owner
        wins, triples = _wins(
            self.scores.double(),
            matching=is_same_client & is_other_round,
            differing=~is_same_client & is_other_round,
            owner=owner,
            clients=len(clients),
        )
        with_triples = (triples.sum(1) > 0).nonzero().flatten()
        if not len(with_triples):
            raise ViewError(
                "no client of whom two messages are compared with another client's. It takes two clients with messages"
                " in two rounds; if clients change names between rounds, give `client: NUMBER` in the truth of each"
            )
        won_triples = wins[with_triples].sum(1)
        all_triples = triples[with_triples].sum(1)
        auc = won_triples / all_triples
        # Row w: the AUC of every client if client w had sent nothing.
        wins_without = won_triples - wins[with_triples][:, with_triples].T
        triples_without = all_triples - triples[with_triples][:, with_triples].T
        auc_without = (wins_without / triples_without).fill_diagonal_(torch.nan)
        count = len(with_triples)
        pseudo_values = auc
        if count > 2:
            # Jackknife: n times the mean minus (n - 1) times the mean without client w.
            pseudo_values = count * auc.mean() - (count - 1) * auc_without.nanmean(1)
        matching_pairs = (is_same_client & is_other_round).sum(1)
        positives = torch.zeros(len(clients), dtype=torch.int64).index_add_(0, owner, matching_pairs)
        pairs = torch.zeros(len(clients), dtype=torch.int64).index_add_(0, owner, is_other_round.sum(1))
        return Scores(
            {"auc": auc},
            pairs[with_triples],
            positives[with_triples],
            units=clients[with_triples],
            influences={"auc": pseudo_values.nan_to_num(float(auc.mean()))},
        )


def _wins(scores: Tensor, *, matching: Tensor, differing: Tensor, owner: Tensor, clients: int) -> tuple[Tensor, Tensor]:
    """``(U, U)`` by the client of a pair and the client compared with it: triples that are right, and all of them."""
    is_client = torch.nn.functional.one_hot(owner, clients).double()
    wins = torch.zeros(clients, clients, dtype=torch.float64)
    triples = torch.zeros_like(wins)
    # Each pair of one client's messages is compared with all messages at once: `len(scores)` comparisons a pair.
    for pairs in torch.split(matching.nonzero(), max(1, _TRIPLES // max(len(scores), 1))):
        first, second = pairs.T
        pair_scores = scores[first, second][:, None]
        is_higher = (pair_scores > scores[first]).double()
        is_tie = (pair_scores == scores[first]).double()
        is_compared = differing[first].double()
        # Only messages of other clients in other rounds than the first make a triple; a tie is half right.
        wins.index_add_(0, owner[first], ((is_higher + is_tie / 2) * is_compared) @ is_client)
        triples.index_add_(0, owner[first], is_compared @ is_client)
    return wins, triples


class LinkAttack(Attack):
    """Base class of attacks that link messages of different rounds."""

    family = "linkability"
    estimates: ClassVar[type[Estimate]] = LinkEstimate


def compared_messages(view: History, *, generator: torch.Generator) -> Tensor:
    """``(M,)`` numbers of at most `MOST_MESSAGES` messages: of the first rounds that fit, but of two rounds at least.

    Of two rounds with more messages, as many are drawn at random from each.

    Raises:
        ViewError: the view has one round.
    """
    rounds = torch.unique(view.sent_in)
    if len(rounds) < 2:
        raise ViewError("the recording has messages of one round; record two rounds or more")
    sizes = torch.stack([(view.sent_in == number).sum() for number in rounds])
    fitting = max(int((sizes.cumsum(0) <= MOST_MESSAGES).sum()), 2)
    most = MOST_MESSAGES
    if int(sizes[:fitting].sum()) > MOST_MESSAGES:
        most = MOST_MESSAGES // 2  # two rounds that do not fit share the messages equally
    drawn_of_rounds = []
    for number in rounds[:fitting]:
        of_round = (view.sent_in == number).nonzero().flatten()
        drawn_of_rounds.append(of_round[torch.randperm(len(of_round), generator=generator)[:most]])
    return torch.cat(drawn_of_rounds)


class LinkCounts(LinkAttack):
    """Ratio of the numbers of examples that two messages report, ``-|log n_i - log n_j|``.

    Threat model: passive server that sees only how many examples each message reports.

    References:
        This project.

    Example:
        >>> import torch
        >>> from fedleak.attacks.linkability import LinkCounts
        >>> from fedleak.attacks.linkability.toy import toy
        >>> view, truth = toy()
        >>> estimate = LinkCounts()(view, generator=torch.Generator().manual_seed(0))
        >>> round(float(estimate.score(view, truth).metrics["auc"].mean()), 2)
        0.5
    """

    name = "link-counts"
    baseline = True
    threat_model = ThreatModel(sees="the number of examples of every message", knows="nothing", needs=("sent_in",))

    def run(self, view: History, *, generator: torch.Generator) -> LinkEstimate:
        messages = compared_messages(view, generator=generator)
        sizes = view.example_counts[messages].double().clamp(min=1).log()
        return LinkEstimate(messages=messages, scores=-(sizes[:, None] - sizes).abs())
