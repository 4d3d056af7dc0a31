"""RAIFLE's gradient matching for federated online learning to rank."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from fedleak.attacks.interactions.estimates import InteractionAttack, InteractionEstimate
from fedleak.client.ranked_lists import Lists, ranked_lists
from fedleak.client.ranking import RankingAlgorithm
from fedleak.core.ranges import PositiveFloat, PositiveInt
from fedleak.core.threat_model import ThreatModel
from fedleak.core.view import RoundView
from fedleak.modules.attackers.batched_lbfgs import batched_lbfgs


@dataclass(frozen=True, kw_only=True)
class ListMatching(InteractionAttack):
    """RAIFLE on ranked lists, gradient matching: relaxed clicks whose simulated update is closest to the received one.

    One logit per document, initialised from U(-1, 1); the loss is the mean squared difference of the updates, divided
    by the learning rate. L-BFGS with a strong Wolfe line search minimises it for each victim by itself. The order in
    which the client worked through its lists is unknown; the simulation uses the served order. Results are called
    ``raifle`` if the server manipulated the features, ``raifle-none`` otherwise.

    The published code detaches P(R*) of the position-bias ratio P(R*) / (P(R) + P(R*)) from the graph and leaves P(R)
    attached, so that L-BFGS gets a wrong gradient of the loss. With injected noise, whose scores are nearly equal, this
    has little effect; with real features it stops the optimisation far from its minimum.

    Threat model: passive server, or an active one that sends features of its choice; it knows the served documents,
    their displayed order and the algorithm.

    Args:
        variant: ``corrected``: the gradient of the loss; ``as-published-code``: with the half-detached ratio. Clients
            of the published code are a setting of the learner, `fedleak.modules.learners.fpdgd.FPDGD`.
        max_iter: maximum number of iterations of L-BFGS.
        learning_rate: first step length of every line search.
        starts: random starts, of which the best is kept (published: 1).
        victims_at_once: victims processed together, which bounds the memory; None for all.

    References:
        [Pham25], Algorithm 1.

    Example:
        >>> import torch
        >>> from fedleak.attacks.ranking import ListMatching
        >>> from fedleak.attacks.ranking.toy import toy
        >>> view, truth = toy()
        >>> estimate = ListMatching(max_iter=30)(view, generator=torch.Generator().manual_seed(0))
        >>> float(estimate.score(view, truth).metrics["auc"].mean()) > 0.9
        True
    """

    name = "raifle"
    manipulated_names: ClassVar[Mapping[str | None, str]] = {None: "raifle-none"}
    family = "ranking"
    references = ("Pham25, Algorithm 1",)
    cost = "up to `max_iter` simulated trainings per victim and start, with gradients"
    threat_model = ThreatModel(
        sees="each client's update and the documents it was served, with their features",
        knows="the learning algorithm and the displayed order",
        needs=("served", "lists", "features", RankingAlgorithm, "deltas"),
    )

    variant: Literal["corrected", "as-published-code"] = "corrected"
    max_iter: PositiveInt = 1000
    learning_rate: PositiveFloat = 0.1
    starts: PositiveInt = 1
    victims_at_once: PositiveInt | None = 128

    def run(self, view: RoundView, *, generator: torch.Generator) -> InteractionEstimate:
        chunks = torch.split(torch.arange(view.victims), self.victims_at_once or view.victims)
        scores = torch.cat([self._scores(view.select(chunk), generator) for chunk in chunks])
        # A logit above 0 is a click that is more likely than not.
        return InteractionEstimate(scores=scores, decisions=(scores > 0) & view.served_mask)

    def _scores(self, view: RoundView, generator: torch.Generator) -> Tensor:
        """``(V, R)`` logits of the start with the lowest loss, for each victim by itself."""
        objective = _Loss(view, half_detached=self.variant == "as-published-code")
        shape = objective.lists.mask.shape
        best = torch.zeros(shape).flatten(1)
        lowest = torch.full((view.victims,), torch.inf)
        for _ in range(self.starts):
            start = (torch.rand(shape, generator=generator) * 2 - 1).flatten(1)  # U(-1, 1)
            point, loss = batched_lbfgs(objective, start, max_iter=self.max_iter, learning_rate=self.learning_rate)
            is_better = loss < lowest
            best = torch.where(is_better[:, None], point, best)
            lowest = torch.where(is_better, loss, lowest)
        return objective.lists.of_items(best.reshape(shape), view.served_mask).float()


class _Loss:
    """The objective of `batched_lbfgs` on logits ``(V, Q L)``."""

    def __init__(self, view: RoundView, *, half_detached: bool) -> None:
        self.learner = view.require(RankingAlgorithm)
        self.lists = ranked_lists(view)
        self.half_detached = half_detached
        self.model = view.sent_models()
        self.rate = self.learner.learning_rate
        self.names = list(view.deltas)
        self.received = torch.cat([delta.flatten(1) for delta in view.deltas.values()], dim=1) / self.rate
        self._selected = torch.arange(0), self.model, self.lists, self.received

    def __call__(self, point: Tensor, victims: Tensor) -> tuple[Tensor, Tensor]:
        model, lists, received = self._of(victims)
        with torch.enable_grad():
            logits = point.detach().requires_grad_()
            clicks = torch.sigmoid(logits).reshape(lists.mask.shape) * lists.mask
            deltas = self.learner.simulate_lists(
                model,
                lists.features,
                lists.mask,
                clicks,
                document=lists.document,
                half_detached=self.half_detached,
            )
            simulated = torch.cat([deltas[name].flatten(1) for name in self.names], dim=1) / self.rate
            losses = (simulated - received).square().mean(1)
            # Losses of different victims share no logit, so the gradient of their sum has that of each.
            (gradient,) = torch.autograd.grad(losses.sum(), logits)
        return losses.detach(), gradient

    def _of(self, victims: Tensor) -> tuple[Mapping[str, Tensor], Lists, Tensor]:
        """Models, lists and received updates of some victims; kept, because a line search asks for the same again."""
        if not torch.equal(victims, self._selected[0]):
            model = {name: value[victims] for name, value in self.model.items()}
            self._selected = victims, model, self.lists.select(victims), self.received[victims]
        return self._selected[1:]
