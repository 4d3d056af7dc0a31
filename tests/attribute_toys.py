"""Updates of people with attributes: made by hand, or by a training of a recommender whose users have tastes."""

import dataclasses
import functools
import tempfile
from pathlib import Path

import torch
from torch import Tensor

from fedleak.callbacks.delta_recorder import DeltaRecorder
from fedleak.client.engine.local_hyperparameters import LocalTraining
from fedleak.core.history import History
from fedleak.core.seeding import generator_for
from fedleak.core.view import ATTRIBUTE, ATTRIBUTE_PSEUDONYMS
from fedleak.datamodules.recommendation.interactions import Interactions
from fedleak.datamodules.recommendation.synthetic_recommender import SyntheticRecommender
from fedleak.evaluation.message_selection import client_truth
from fedleak.modules.learners.fncf import FNCF
from fedleak.recordings.joined_view import messages_view
from fedleak.recordings.recording import Recording
from fedleak.training.people import Attributes
from tests.toys import quiet_trainer

Toy = tuple[History, dict[str, Tensor]]


@functools.cache
def toy(people: int = 120, rounds: int = 2, *, leak: float = 2.0, values: int = 2, seed: int = 0) -> Toy:
    """Everyone sends in every round; `colour`, with so many values, shifts a few numbers, and `luck` shifts none."""
    generator = generator_for(seed, "attribute toy")
    colour = torch.randint(values, (people,), generator=generator)
    luck = torch.randint(3, (people,), generator=generator)
    sender = torch.arange(people).repeat(rounds)
    names = torch.randperm(10 * people, generator=generator)[:people] + 1000
    noise = torch.randn(rounds, people, 40, generator=generator) + 3 * torch.randn(rounds, 1, 40, generator=generator)
    shift = torch.randn(rounds, values, 40, generator=generator) * (torch.arange(40) < 8)
    deltas = (noise + leak * shift[:, colour]).flatten(0, 1)
    known = torch.randperm(people, generator=generator)[: people // 2]
    view = History(
        round=0,
        pseudonyms=names[sender],
        example_counts=torch.full((len(sender),), 5),
        deltas={
            "layer.weight": deltas[:, :30].reshape(-1, 5, 6),
            "layer.bias": deltas[:, 30:35],
            "out": deltas[:, 35:],
        },
        model={"layer.weight": torch.zeros(5, 6), "layer.bias": torch.zeros(5), "out": torch.zeros(5)},
        sent_in=torch.arange(rounds).repeat_interleave(people),
        auxiliary={
            ATTRIBUTE_PSEUDONYMS: names[known],
            f"{ATTRIBUTE}colour": colour[known],
            f"{ATTRIBUTE}luck": luck[known],
        },
    )
    return view, {"attributes": torch.stack([colour, luck], 1)[sender], "clients": sender}


class Tastes(SyntheticRecommender):
    """Users who mostly choose items of one half of the catalogue: the half is their attribute."""

    def read(self) -> Interactions:
        drawn = super().read()
        kept = (drawn.items % 2 == drawn.users % 2) | (drawn.items % 5 == 0)
        return drawn.select(kept)

    def read_attributes(self) -> dict[str, Tensor]:
        return {"half": torch.arange(self.num_clients) % 2}


@functools.cache
def trained(*, shuffled: bool = False, rounds: int = 1) -> Toy:
    """The messages of a training on `Tastes`, and their ground truth."""
    data = Tastes(
        users=120, items=60, mean_interactions=20, fewest_interactions=8, attributes=Attributes(shuffled=shuffled)
    )
    module = FNCF(
        user_dim=8, item_dim=8, hidden=(16, 8), local=LocalTraining(optimizer="adam", learning_rate=0.01, epochs=5)
    )
    with tempfile.TemporaryDirectory() as folder:
        deltas = Path(folder) / "deltas"
        trainer = quiet_trainer(rounds, Path(folder), DeltaRecorder(directory=str(deltas)))
        trainer.fit(module, datamodule=data)
        recording = Recording(deltas)
        view = messages_view(recording)
        parts = dict(view.by_round)
        truth = client_truth(recording, view, ("attributes", "clients"))
        return dataclasses.replace(view, by_round=parts, read_parts=None, round_models={}), truth
