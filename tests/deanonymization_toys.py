"""A leaky federation of generated writers: each with an anonymous device and one that the adversary knows."""

import dataclasses
import functools

import torch

from fedleak.client.engine.local_hyperparameters import LocalTraining
from fedleak.client.engine.local_training import train_clients
from fedleak.client.text import TextAlgorithm, TextOptions
from fedleak.core.history import History
from fedleak.core.seeding import generator_for
from fedleak.core.view import USERS
from fedleak.datamodules.devices.device_split import Devices
from fedleak.datamodules.devices.synthetic_posts import SyntheticPosts
from fedleak.evaluation.message_selection import draw_pairs
from fedleak.modules.learners.text import FederatedText

NETWORK = TextOptions(vocabulary=40, embedding=8, hidden=8)
LOCAL = LocalTraining(learning_rate=0.3, batch_size=10)
WRITERS = 20


@functools.cache
def source(habit: float = 0.8, posts: int = 60, share: tuple[float, float] = (0.3, 0.7)) -> SyntheticPosts:
    devices = Devices(share=share)
    return SyntheticPosts(
        writers=WRITERS, posts=posts, vocabulary=40, length=8, habit=habit, devices=devices, clients_per_round=0.5
    )


@functools.cache
def joined(
    rounds: int = 10, habit: float = 0.8, share: tuple[float, float] = (0.3, 0.7)
) -> tuple[History, torch.Tensor]:
    """What a server sees over some rounds, and the users of the anonymous messages, then of the known ones."""
    data = source(habit, share=share)
    module = FederatedText(network=NETWORK, local=LOCAL)
    parts: list[tuple[torch.Tensor, dict[str, torch.Tensor], int]] = []
    models = {}
    for number in range(rounds):
        public = {name: value.clone() for name, value in module.public_parameters().items()}
        models[number] = public
        cohort = module.interact(data.cohort(number), public)
        deltas = train_clients(module.algorithm, public, {}, cohort, LOCAL, seed=0).deltas
        lstm = {name: value.clone() for name, value in deltas.items() if name.startswith(("lstm", "output"))}
        parts.append((cohort.clients, lstm, number))
        with torch.no_grad():
            for name, value in lstm.items():
                module.get_parameter(name).add_(value.mean(0))
    clients = torch.cat([part[0] for part in parts])
    whole = History(
        round=rounds - 1,
        pseudonyms=clients + 1000,
        example_counts=torch.tensor([len(part) for part in data.client_examples()])[clients],
        deltas={name: torch.cat([part[1][name] for part in parts]) for name in parts[0][1]},
        model=models[rounds - 1],
        algorithm=TextAlgorithm(network=NETWORK, local=LOCAL),
        sent_in=torch.cat([torch.full_like(part[0], part[2]) for part in parts]),
        round_models=models,
    )
    users, known = data.client_users[clients], data.client_known[clients]
    held = [data.client_examples()[client] for client in data.client_known.nonzero().flatten().tolist()]
    prior = torch.cat(held)
    auxiliary = {
        "prior_features": data.examples.features[prior],
        "prior_labels": data.examples.labels[prior],
        "prior_users": data.examples.owners[prior],
    }
    own = dataclasses.replace(whole.select(known.nonzero().flatten()), priors={USERS: users[known]})
    truth = torch.cat([users[~known], users[known]])
    view = dataclasses.replace(whole.select((~known).nonzero().flatten()), known=own, auxiliary=auxiliary)
    return with_pairs(view, truth), truth


def with_pairs(view: History, truth: torch.Tensor) -> History:
    everything = torch.arange(len(truth))
    first, second = everything[: view.victims], everything[view.victims :]
    pairs = draw_pairs(first, second, truth, each=3, generator=generator_for(0, "pairs"))
    return dataclasses.replace(view, pairs=pairs)


def shuffled(view: History, seed: int) -> History:
    """The known devices under other users' names: what is learned of them says nothing."""
    assert view.known is not None
    names = torch.randperm(WRITERS, generator=generator_for(seed, "names"))
    moved = {name: names[value] for name, value in view.known.priors.items()}
    auxiliary = {**view.auxiliary, "prior_users": names[view.auxiliary["prior_users"]]}
    return dataclasses.replace(view, known=dataclasses.replace(view.known, priors=moved), auxiliary=auxiliary)
