"""FPDGD as the server can simulate it, knowing no client: the whole local pass, differentiable in the clicks."""

from collections.abc import Mapping

import torch
from torch import Tensor

from modules.engine.tasks import Parameters
from modules.nets.ranker import rank_scores, ranker_shapes, score_gradients
from protocol.pdgd import click_coefficients, pair_weights


class FPDGDLearner:
    """Simulates clients of FPDGD; see `protocol.simulators.RankingSimulator`.

    Args:
        learning_rate: local learning rate.
        click_model: name of the cascade click model that the clients follow.
        grade_law: how often each grade occurs among the documents, ``(G,)``.
    """

    def __init__(self, *, learning_rate: float, click_model: str, grade_law: list[float]) -> None:
        self.learning_rate = learning_rate
        self.click_model = click_model
        self.grade_law = torch.tensor(grade_law)

    def network_shapes(self, held: Mapping[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
        """Shapes of the ranker."""
        return ranker_shapes(held)

    def simulate_lists(
        self,
        model: Mapping[str, Tensor],
        features: Tensor,
        mask: Tensor,
        clicks: Tensor,
        order: Tensor | None = None,
    ) -> dict[str, Tensor]:
        clients, lists = mask.shape[:2]
        start: Parameters = {n: v.to(features.dtype).expand(clients, *v.shape) for n, v in model.items()}
        current = dict(start)
        everyone = torch.arange(clients)
        for step in range(lists):
            now = torch.full((clients,), step) if order is None else order[:, step]
            documents, shown = features[everyone, now], mask[everyone, now]
            weights = pair_weights(rank_scores(current, documents), shown)
            coefficients = self.learning_rate * click_coefficients(weights, clicks[everyone, now])
            change = score_gradients(current, documents, coefficients)
            current = {name: value + change[name] for name, value in current.items()}
        return {name: value - start[name] for name, value in current.items()}
