"""Utility of a federated recommender: hit rate and NDCG of each user's held-out item."""

from collections.abc import Iterable

import torch
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.retrieval import RetrievalHitRate, RetrievalNormalizedDCG

from fedleak.client.recommendation import USER_EMBEDDING
from fedleak.training.federated import FederatedModule


class HeldOutRanking(FederatedModule):
    """HR@k and NDCG@k of a learner whose `forward` scores items ``(B, K)`` for private vectors ``(B, user_dim)``."""

    hit_rate: RetrievalHitRate
    ndcg: RetrievalNormalizedDCG
    top_k: int

    def rank_at(self, top_k: int) -> None:
        """Creates the metrics; called by the constructor of a subclass."""
        self.hit_rate = RetrievalHitRate(top_k=top_k)
        self.ndcg = RetrievalNormalizedDCG(top_k=top_k)
        self.top_k = top_k

    def update_metrics(self, batch: dict[str, Tensor]) -> dict[str, Metric]:
        """Metrics by name, after adding a batch of users; padded candidates (-1) are ignored."""
        clients = batch["clients"]
        items = batch["items"]
        mask = items >= 0
        users = self.private[USER_EMBEDDING][clients.cpu()].to(self.device)
        scores = self(users, items.clamp(min=0))
        # The metrics group candidates by user.
        index = clients[:, None].expand(items.shape)
        metrics: dict[str, Metric] = {f"val/hr@{self.top_k}": self.hit_rate, f"val/ndcg@{self.top_k}": self.ndcg}
        for metric in metrics.values():
            metric.update(scores[mask], batch["target"][mask], indexes=index[mask])
        return metrics


def held_out_hits(batches: Iterable[dict[str, Tensor]], table: Tensor, users: Tensor, *, top_k: int = 10) -> Tensor:
    """Hits of each client's held-out item among the `top_k` of its candidates, scored by ``u.v``.

    Args:
        batches: users with candidates, as `RecommenderDataModule.val_dataloader` gives them.
        table: item vectors ``(I, d)``.
        users: private vectors of all clients ``(C, d)``.
        top_k: length of the list.

    Returns:
        ``(C,)`` 1 or 0, NaN for a client without a held-out item.
    """
    hits = torch.full((len(users),), torch.nan)
    for batch in batches:
        vectors = users[batch["clients"]].double()
        scores = torch.einsum("bkd,bd->bk", table[batch["items"].clamp(min=0)].double(), vectors)
        scores = scores.masked_fill(batch["items"] < 0, -torch.inf)
        held_out_score = scores.masked_fill(~batch["target"], -torch.inf).amax(1, keepdim=True)
        # A tie counts against the client: a table of zeros ranks nothing.
        rank = ((scores >= held_out_score) & ~batch["target"]).sum(1)
        hits[batch["clients"]] = (rank < top_k).float()
    return hits
