"""Clients of a language model with a few texts each."""

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from fedleak.client.engine.local_hyperparameters import LocalTraining
from fedleak.client.text import TextAlgorithm, TextOptions
from fedleak.core.seeding import generator_for
from fedleak.core.view import RoundView

CLIENTS, TEXTS, LENGTH, WORDS = 6, 6, 6, 150
NETWORK = TextOptions(vocabulary=WORDS, embedding=12, hidden=16)


def toy() -> tuple[RoundView, dict[str, Tensor]]:
    """What the server sees after one step of SGD, the ``words (V, R)`` of each client, and how often each is next."""
    generator = generator_for(0, "words toy")
    # Words become rarer as one over their rank, as in real texts; 0 is padding.
    law = 1 / torch.arange(1.0, WORDS)
    drawn = torch.multinomial(law, 2 * CLIENTS * TEXTS * LENGTH, replacement=True, generator=generator) + 1
    texts, known_texts = drawn.reshape(2, -1, LENGTH)
    examples = torch.arange(len(texts)).reshape(CLIENTS, TEXTS)
    algorithm = TextAlgorithm(network=NETWORK, local=LocalTraining(optimizer="sgd", learning_rate=0.5))
    # Uniform weights with a bound of one over the root of the hidden units, as PyTorch draws them.
    bound = NETWORK.hidden**-0.5
    model = {
        name: bound * (2 * torch.rand(shape, generator=generator) - 1)
        for name, shape in algorithm.network_shapes({}).items()
    }
    view = RoundView(
        round=0,
        pseudonyms=torch.arange(CLIENTS),
        example_counts=torch.full((CLIENTS,), TEXTS),
        deltas=algorithm.simulate_examples(model, texts, torch.zeros(len(texts)), examples, generator=generator),
        model=model,
        algorithm=algorithm,
        auxiliary={"prior_features": known_texts},
    )
    words = [torch.unique(texts[client]) for client in examples]
    # Each word but the first of a text is predicted.
    predicted = [texts[client, 1:].flatten().bincount(minlength=WORDS) for client in examples]
    next_words = [counts[own] for counts, own in zip(predicted, words, strict=True)]
    return view, {
        "words": pad_sequence(words, batch_first=True),
        "next_words": pad_sequence(next_words, batch_first=True),
    }
