"""Attacks: the closed form against gradient matching."""

import time

from bench.measure import Measure
from fedleak.attacks.interactions.estimates import InteractionEstimate
from fedleak.attacks.recommendation.item_deltas import Direction
from fedleak.attacks.recommendation.raifle import Raifle
from fedleak.client.fncf import FNCFAlgorithm
from fedleak.client.recommendation import USER_EMBEDDING
from fedleak.core.scoring import auc_per_victim
from fedleak.core.seeding import generator_for
from fedleak.core.view import ITEM_EMBEDDING, RoundView
from fedleak.datamodules.recommendation.synthetic_recommender import SyntheticRecommender
from fedleak.modules.learners.fncf import FNCF


def attack_times(victims: int) -> list[Measure]:
    """Closed form against gradient matching, seconds per victim, on generated users of MovieLens' shape."""
    source = SyntheticRecommender(holdout=False)
    module = FNCF(num_items=source.num_items, num_clients=source.num_clients)
    cohort = source.build_cohort(0, source.participants(0)[:victims])
    learner = FNCFAlgorithm(user_dim=64, local=module.local)
    users = module.private[USER_EMBEDDING][cohort.clients]
    served = cohort.rows[ITEM_EMBEDDING]
    deltas = learner.simulate(module.public_parameters(), served, cohort.examples["label"], users)
    view = RoundView(
        round=0,
        pseudonyms=cohort.clients,
        example_counts=cohort.counts,
        deltas={ITEM_EMBEDDING: deltas[ITEM_EMBEDDING]},
        model=module.public_parameters(),
        row_parameters=frozenset([ITEM_EMBEDDING]),
        served=served,
        algorithm=learner,
    )
    measures = []
    for attack in (Direction(), Raifle(max_iter=40)):
        start = time.perf_counter()
        estimate = attack(view, generator=generator_for(0, "bench-attack"))
        seconds = (time.perf_counter() - start) / victims
        if not isinstance(estimate, InteractionEstimate):
            raise SystemExit(f"{attack.name} gave no interactions")
        auc = float(auc_per_victim(estimate.scores, cohort.examples["label"], cohort.mask).nanmean())
        measures.append(Measure("attack per victim", f"{attack.name} (AUC {auc:.3f})", seconds))
    return measures[::-1]
