"""A leaky federation of language models: generated posts, all rows of the word table and the last layer recorded."""

import functools

import torch

from fedleak.client.engine.local_hyperparameters import LocalTraining
from fedleak.client.engine.local_training import train_clients
from fedleak.client.text import EMBEDDING, TextOptions, text_cohort
from fedleak.core.view import RoundView
from fedleak.datamodules.devices.synthetic_posts import synthetic_posts
from fedleak.defenses.base import Update, with_whole_tables
from fedleak.modules.learners.text import FederatedText

STEP = LocalTraining(learning_rate=0.5, batch_size=None)
NETWORK = TextOptions(vocabulary=150, embedding=12, hidden=16)
TEXTS = 6


@functools.cache
def words_seen(local: LocalTraining = STEP, clients: int = 8) -> tuple[RoundView, dict[str, torch.Tensor]]:
    """What the server sees of clients with a few posts each, and the ground truth of their words."""
    posts = synthetic_posts(users=clients, posts=2 * TEXTS, vocabulary=150, seed=1)
    mine = [(posts.owners == user).nonzero().flatten() for user in range(clients)]
    examples = torch.stack([own[:TEXTS] for own in mine])
    cohort = text_cohort(0, torch.arange(clients), posts.features, posts.labels, examples)
    module = FederatedText(network=NETWORK, local=local)
    public = {name: value.clone() for name, value in module.public_parameters().items()}
    deltas = train_clients(module.algorithm, public, {}, cohort, local, seed=0).deltas
    sent = with_whole_tables(Update(deltas, dict(cohort.rows)), (EMBEDDING,), public)
    view = RoundView(
        round=0,
        pseudonyms=torch.arange(clients) + 100,
        example_counts=cohort.counts,
        deltas=sent.deltas,
        model=public,
        algorithm=module.algorithm,
        auxiliary={"prior_features": posts.features[torch.cat([own[TEXTS:] for own in mine])]},
    )
    return view, module.client_truth(cohort)
