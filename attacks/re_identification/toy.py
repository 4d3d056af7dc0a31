"""Writers with habits of their own, each with an anonymous device and one whose owner the server knows."""

import dataclasses

import torch
from torch import Tensor

from fedleak.client.engine.local_hyperparameters import LocalTraining
from fedleak.client.text import TextAlgorithm, TextOptions
from fedleak.core.history import History
from fedleak.core.seeding import generator_for
from fedleak.core.view import HOLDOUT, USERS

USER_COUNT, ROUNDS = 12, 3
POSTS, LENGTH, WORDS = 20, 8, 40
"""Posts of each device, words of each post, and words of the vocabulary, of which 0 is padding."""
HABIT = 1.5
"""Standard deviation of the logits of a user's words."""
NETWORK = TextOptions(vocabulary=WORDS, embedding=8, hidden=8)
SENT = ("lstm", "output")
"""Parts of the network whose updates are recorded."""
PARTNERS = 3
"""Known messages of either user with which each anonymous one is compared."""


def toy(*, hold_out: bool = False) -> tuple[History, dict[str, Tensor]]:
    """Anonymous and known messages of all rounds, and their users: ``user (V,)`` and ``known_user (K,)``.

    Args:
        hold_out: whether half of the known users are only there to say what anybody writes.
    """
    generator = generator_for(0, "re-identification toy")
    law = (HABIT * torch.randn(USER_COUNT, WORDS - 1, generator=generator)).softmax(1)
    # Devices of user u are u, which is anonymous, and u + U, which is known.
    drawn = torch.multinomial(law.repeat(2, 1), POSTS * LENGTH, replacement=True, generator=generator)
    posts = (drawn + 1).reshape(-1, LENGTH)
    owner = torch.arange(USER_COUNT).repeat(2).repeat_interleave(POSTS)
    examples = torch.arange(len(posts)).reshape(2 * USER_COUNT, POSTS)
    algorithm = TextAlgorithm(network=NETWORK, local=LocalTraining(optimizer="sgd", learning_rate=0.3, batch_size=10))
    shapes = algorithm.network_shapes({})
    # Uniform weights with a bound of one over the root of the hidden units, as PyTorch draws them.
    bound = NETWORK.hidden**-0.5
    model = {name: bound * (2 * torch.rand(shape, generator=generator) - 1) for name, shape in shapes.items()}

    labels = torch.zeros(len(posts))
    sent = [algorithm.simulate_examples(model, posts, labels, examples, generator=generator) for _ in range(ROUNDS)]
    device = torch.arange(2 * USER_COUNT).repeat(ROUNDS)
    messages = History(
        round=ROUNDS - 1,
        pseudonyms=device,
        example_counts=torch.full((len(device),), POSTS),
        deltas={name: torch.cat([deltas[name] for deltas in sent]) for name in shapes if name.startswith(SENT)},
        model=model,
        algorithm=algorithm,
        sent_in=torch.arange(ROUNDS).repeat_interleave(2 * USER_COUNT),
        round_models=dict.fromkeys(range(ROUNDS), model),
    )
    user = device % USER_COUNT
    anonymous = (device < USER_COUNT).nonzero().flatten()
    known = (device >= USER_COUNT).nonzero().flatten()
    priors = {USERS: user[known]}
    if hold_out:
        priors[HOLDOUT] = user[known] >= USER_COUNT // 2
    view = dataclasses.replace(
        messages.select(anonymous),
        known=dataclasses.replace(messages.select(known), priors=priors),
        auxiliary={
            "prior_features": posts[USER_COUNT * POSTS :],
            "prior_labels": labels[USER_COUNT * POSTS :],
            "prior_users": owner[USER_COUNT * POSTS :],
        },
        pairs=_pairs(user[anonymous], user[known]),
    )
    return view, {"user": user[anonymous], "known_user": user[known]}


def _pairs(users: Tensor, known_users: Tensor) -> Tensor:
    """``(M, 2)`` each anonymous message with known ones of its user, and with as many of the next user.

    Known messages are counted on from the anonymous ones.
    """
    pairs = []
    for message, user in enumerate(users.tolist()):
        for other in (user, (user + 1) % USER_COUNT):
            partners = (known_users == other).nonzero().flatten()[:PARTNERS]
            pairs += [(message, len(users) + partner) for partner in partners.tolist()]
    return torch.tensor(pairs)
