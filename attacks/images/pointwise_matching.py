"""RAIFLE's gradient matching for rankers of images."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from fedleak.attacks.images.affine_inversion import pointwise_update
from fedleak.attacks.interactions.estimates import InteractionAttack, InteractionEstimate
from fedleak.client.pointwise_descent import VoteAlgorithm
from fedleak.core.ranges import PositiveInt
from fedleak.core.threat_model import ThreatModel
from fedleak.core.view import RoundView

_LEARNING_RATE = 0.1
"""Learning rate of Adam, as published."""


@dataclass(frozen=True, kw_only=True)
class PointwiseMatching(InteractionAttack):
    """RAIFLE on items scored one by one, gradient matching of the simulated update of relaxed clicks.

    One logit per item, initialised from U(-1, 1) and optimised by Adam; the loss is the mean squared difference of the
    updates, divided by the learning rate. Results are called ``raifle-none`` if the served images are real, ``fgsm`` if
    they are perturbed by the fast gradient sign method (section V.C.4), and ``raifle`` if they are manipulated in
    another way.

    Threat model: passive server, or an active one that sends manipulated images. It knows the feature extractor and the
    algorithm.

    Args:
        max_iter: steps of Adam (published: 300).
        variant: ``corrected`` returns each victim's point of least loss, as the published code intends;
            ``as-published-code`` returns the last point, because that code keeps a reference to what Adam changes.

    References:
        [Pham25], Algorithm 1 and section V.C.3.

    Example:
        >>> import torch
        >>> from fedleak.attacks.images import PointwiseMatching
        >>> from fedleak.attacks.images.toy import toy
        >>> view, truth = toy()
        >>> estimate = PointwiseMatching()(view, generator=torch.Generator().manual_seed(0))
        >>> float(estimate.score(view, truth).metrics["auc"].mean()) > 0.9
        True
    """

    name = "raifle"
    manipulated_names: ClassVar[Mapping[str | None, str]] = {None: "raifle-none", "fgsm": "fgsm"}
    family = "images"
    references = ("Pham25, Algorithm 1 and section V.C.3",)
    cost = "`max_iter` simulated trainings per victim, with gradients"
    threat_model = ThreatModel(
        sees="each client's update and the images it was served",
        knows="the learning algorithm and the feature extractor",
        needs=("served", "features", VoteAlgorithm, "deltas"),
    )

    max_iter: PositiveInt = 300
    variant: Literal["corrected", "as-published-code"] = "corrected"

    def run(self, view: RoundView, *, generator: torch.Generator) -> InteractionEstimate:
        update = pointwise_update(view)
        target = update.sent.plus(update.change)
        start = torch.rand(view.served_mask.shape, generator=generator) * 2 - 1
        logits = start.to(update.items.features).requires_grad_()
        best_logits = logits.detach().clone()
        lowest_loss = torch.full((view.victims,), torch.inf).to(logits.detach())
        optimizer = torch.optim.Adam([logits], lr=_LEARNING_RATE)
        for _ in range(self.max_iter):
            with torch.enable_grad():
                simulated = update.path(torch.sigmoid(logits))[-1]
                # Mean squared difference of the gradients, which are the updates divided by the learning rate.
                losses: Tensor = simulated.plus(target, -1.0).squares() / (update.rate**2 * update.sent.numbers)
                optimizer.zero_grad()
                losses.sum().backward()  # type: ignore[no-untyped-call]
            # The logits that gave this loss, before Adam moves them.
            is_better = losses.detach() < lowest_loss
            lowest_loss = torch.where(is_better, losses.detach(), lowest_loss)
            best_logits = torch.where(is_better[:, None], logits.detach(), best_logits)
            optimizer.step()
        if self.variant == "as-published-code":
            best_logits = logits.detach()
        return InteractionEstimate(scores=best_logits, decisions=(best_logits > 0) & view.served_mask)
