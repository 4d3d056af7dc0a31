"""What the server sees of a round: the record of its messages, and the view of the clients' own updates."""

import torch
from torch import Tensor

from fedleak.client.cohort import Cohort
from fedleak.client.engine.fast.gradients import Parameters
from fedleak.core.served_features import features_of
from fedleak.core.view import RoundView
from fedleak.defenses.base import Update, shown_counts
from fedleak.training.data import FederatedDataModule
from fedleak.training.learner import Learner
from fedleak.training.round_record import RoundRecord
from fedleak_recorder.format import CLIENT_MODEL, PRIOR


def record_round(
    learner: Learner, data: FederatedDataModule | None, cohort: Cohort, update: Update, model: Parameters
) -> RoundRecord:
    """Record of a round as the server saw it, with the ground truth.

    Args:
        learner: the training.
        data: its data, for what is true of the clients themselves.
        cohort: the clients.
        update: what they sent.
        model: the model that they were sent.
    """
    participants = cohort.clients
    examples = learner.examples(cohort)
    # A defence such as secure aggregation shows the server some messages only, each of which sums up several clients.
    contributors = cohort.clients[:, None]
    for defense in learner.defenses:
        groups = defense.contributors(len(cohort))
        update, positions = defense.server_sees(update)
        if positions is not None:
            members = positions[:, None] if groups is None else groups
            contributors = contributors[members].flatten(1)
            cohort = cohort.select(positions)
            examples = examples and examples.joined(members)
    # Prior knowledge and ground truth: of the learner, the defences and the data, in this order.
    priors = learner.priors(cohort)
    truth = learner.truth(cohort)
    facts = learner.client_truth(cohort)
    if examples is not None:
        facts = facts | learner.message_truth(examples)
    for defense in learner.defenses:
        defense_priors, defense_facts = defense.recorded_facts(cohort.clients)
        priors = priors | defense_priors
        facts = facts | defense_facts
    if data is not None:
        facts = facts | data.truth_of(cohort.clients.cpu())
    of_clients = {f"{PRIOR}{name}": value for name, value in priors.items()}
    of_clients |= {f"{CLIENT_MODEL}{name}": value for name, value in learner.client_models(cohort).items()}
    return RoundRecord(
        round=cohort.round,
        cohort=cohort,
        participants=participants,
        update=update,
        model=model,
        served=learner.served(cohort),
        truth=truth,
        client_truth=facts,
        of_clients=of_clients,
        item_features=learner.item_features(cohort),
        examples=examples,
        contributors=contributors,
    )


def own_view(learner: Learner, cohort: Cohort, model: Parameters, update: Update) -> tuple[RoundView, Tensor]:
    """Server view and ground truth of the clients' own updates, see `fedleak.defenses.base.OwnView`."""
    shown = learner.served(cohort)
    items = learner.item_features(cohort)
    features = shown.get("features")
    if items is not None:
        features = features_of(items, shown["served"])
    view = RoundView(
        round=cohort.round,
        pseudonyms=cohort.clients,
        example_counts=shown_counts(learner.defenses, cohort.counts),
        deltas=update.deltas,
        model=model,
        row_parameters=frozenset(learner.sent_rows),
        served=shown.get("served"),
        lists=shown.get("lists"),
        features=features,
        client_models=learner.client_models(cohort) or None,
        releases=learner.releases,
        algorithm=learner.algorithm,
    )
    return view, learner.truth(cohort).get("labels", torch.zeros(len(cohort), 0))
