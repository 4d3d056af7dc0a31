"""Users of a recommender with MovieLens' shape, and their updates: inputs of the contests about interactions."""

import numpy as np
import torch

from bench.authors.contest import Comparison
from bench.authors.host import Arrays, part
from fedleak.client.fncf import FNCFAlgorithm
from fedleak.client.recommendation import USER_EMBEDDING
from fedleak.core.scoring import auc_per_victim, f1_per_victim
from fedleak.core.view import ITEM_EMBEDDING, RoundView
from fedleak.datamodules.recommendation.synthetic_recommender import SyntheticRecommender
from fedleak.modules.learners.fncf import FNCF, PAPER_LOCAL


def user_inputs(victims: int) -> tuple[Arrays, Arrays]:
    """The global model, served items and updates of the item table of the first users, and their interactions.

    Training is that of RAIFLE's paper and code: 20 full-batch epochs of Adam at 0.001 with four negatives a positive.
    """
    source = SyntheticRecommender(holdout=False)
    module = FNCF(num_items=source.num_items, num_clients=source.num_clients)
    cohort = source.build_cohort(0, source.participants(0)[:victims])
    model, served = module.public_parameters(), cohort.rows[ITEM_EMBEDDING]
    users = module.private[USER_EMBEDDING][cohort.clients]
    deltas = module.algorithm.simulate(model, served, cohort.examples["label"], users)[ITEM_EMBEDDING]
    inputs = {
        **{f"model/{name}": value.detach().numpy() for name, value in model.items()},
        "served": served.numpy(),
        "deltas": deltas.detach().numpy(),
        "victims": np.array(victims),
        "seed": np.array(7),
    }
    return inputs, {"labels": cohort.examples["label"].numpy(), "served": served.numpy()}


def user_view(inputs: Arrays) -> RoundView:
    """What fedleak's attacks are given."""
    served = torch.from_numpy(inputs["served"])
    return RoundView(
        round=0,
        pseudonyms=torch.arange(len(served)),
        example_counts=(served >= 0).sum(1),
        deltas={ITEM_EMBEDDING: torch.from_numpy(inputs["deltas"])},
        model={name: torch.from_numpy(value) for name, value in part(inputs, "model").items()},
        row_parameters=frozenset([ITEM_EMBEDDING]),
        served=served,
        algorithm=FNCFAlgorithm(user_dim=inputs[f"model/{ITEM_EMBEDDING}"].shape[1], local=PAPER_LOCAL),
    )


def compared_interactions(truth: Arrays, ours: Arrays, theirs: Arrays, tolerance: float) -> list[Comparison]:
    """AUC of ``scores (V, R)``, and F1 of the scores above 0."""
    labels, mask = torch.from_numpy(truth["labels"]), torch.from_numpy(truth["served"]) >= 0
    scores = [torch.from_numpy(side["scores"]).masked_fill(~mask, 0) for side in (ours, theirs)]
    auc = [float(auc_per_victim(values, labels, mask).nanmean()) for values in scores]
    f1 = [float(f1_per_victim(values > 0, labels, mask).nanmean()) for values in scores]
    return [Comparison("AUC", auc[0], auc[1], tolerance), Comparison("F1", f1[0], f1[1], tolerance)]
