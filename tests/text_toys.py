"""Small recordings of language models: what the server sees of clients with given sentences."""

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from fedleak.client.decoder import DecoderOptions
from fedleak.client.engine.local_hyperparameters import LocalTraining
from fedleak.client.text import TextOptions, text_cohort
from fedleak.core.view import RoundView
from fedleak.modules.learners.decoder import FederatedDecoder
from fedleak.modules.learners.text import FederatedText, TextLearner

WORDS = 60
KINDS = ("lstm", "decoder")
CLIENTS = [
    [[5, 6, 7, 8, 9], [5, 6, 10], [11, 12, 13, 5, 6, 14], [1, 7, 1, 20]],
    [[30, 31, 32], [30, 31, 33, 34], [35, 30]],
]
"""Sentences of two clients; 1 is a word outside the vocabulary."""


def learner(
    kind: str, local: LocalTraining, *, seed: int = 0, vocabulary: int = WORDS, embedding: int | None = None
) -> TextLearner:
    """An untrained language model."""
    if kind == "lstm":
        return FederatedText(
            network=TextOptions(vocabulary=vocabulary, embedding=embedding or 20, hidden=24), local=local, seed=seed
        )
    sizes = DecoderOptions(vocabulary=vocabulary, embedding=embedding or 48, hidden=64, heads=2, places=12)
    return FederatedDecoder(network=sizes, local=local, seed=seed)


def seen(
    kind: str,
    clients: list[list[list[int]]] = CLIENTS,
    *,
    local: LocalTraining | None = None,
    seed: int = 0,
    **sizes: int,
) -> RoundView:
    """The server view of one round in which clients train on their sentences."""
    module = learner(kind, local or LocalTraining(learning_rate=0.3), seed=seed, **sizes)
    texts = [torch.tensor(sentence) for own in clients for sentence in own]
    features = pad_sequence(texts, batch_first=True)
    ends = torch.tensor([len(own) for own in clients]).cumsum(0).tolist()
    numbers = [torch.arange(end - len(own), end) for own, end in zip(clients, ends, strict=True)]
    examples = pad_sequence(numbers, batch_first=True, padding_value=-1)
    cohort = text_cohort(0, torch.arange(len(clients)), features, torch.zeros(len(texts)), examples)
    model = {name: value.detach().clone() for name, value in module.public_parameters().items()}
    update, _ = module.client_updates(module.interact(cohort, model), model)
    return RoundView(
        round=0,
        pseudonyms=torch.arange(len(clients)),
        example_counts=cohort.counts,
        deltas=update.deltas,
        model=model,
        row_parameters=frozenset(update.rows),
        served=update.rows.get("embedding.weight"),
        algorithm=module.algorithm,
    )


def plain(records: Tensor) -> list[list[int]]:
    """Sentences as sorted lists of words."""
    return sorted(row[row > 0].tolist() for row in records)
