"""What the experiments on PAC identifiability share: the clients' data, their learner, and who they are."""

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import torch
from torch import Tensor

from datamodules.movielens import MovieLens
from datamodules.recommendation import RecommenderDataModule
from datamodules.steam import Steam
from datamodules.synthetic import SyntheticRecommender
from defenses.refusal import RefuseProbes
from defenses.row_noise import RowNoise
from experiments.base import PaperExperiment
from experiments.options import as_number, check_names
from modules.local_hyperparameters import LocalTraining
from modules.mf import FederatedMF
from modules.probing import Protocol
from modules.server import ServerOptimizer
from protocol.errors import InputError
from protocol.view import ITEM_EMBEDDING

_DATA: dict[str, type[RecommenderDataModule]] = {"ml-100k": MovieLens, "steam-200k": Steam}
LIKED = "liked"
Labels = str | float
"""``liked``: the user's own likes and dislikes. A number: what it has is liked, others are drawn for that rate."""


@dataclass(frozen=True, kw_only=True)
class Federation:
    """How the recommender is trained before it is attacked; the paper gives no numbers, these are ours.

    Attributes:
        dim: length of user and item vectors.
        loss: loss of the margin.
        learning_rate: local learning rate.
        batch: batch size.
        updates: local updates in a round of Protocol 1; of Protocol 3, one epoch.
        protocol: ``batches`` (Protocol 1) or ``epochs`` (Protocol 3).
        clip: L2 norm to which the gradient of each item's vector is clipped, None for no clipping.
        clients: clients of a round; the server adds their messages.
        refuse: whether clients check the item table and refuse one that looks made up.
    """

    dim: int = 16
    loss: str = "log"
    learning_rate: float = 0.1
    batch: int = 10
    updates: int = 10
    protocol: Protocol = "batches"
    clip: float | None = None
    clients: int = 100
    refuse: bool = False

    def source(self, data: str, labels: Labels, *, root: str | None, seed: int) -> RecommenderDataModule:
        """The clients who can fill a batch, one item of each held out."""
        options: dict[str, Any] = {
            "root": root,
            "seed": seed,
            "clients_per_round": self.clients,
            "fewest_labels": self.batch,
            "degenerate_users": "drop",
        }
        if labels == LIKED:
            return MovieLens(preferences="liked", **options)
        rate = check_rate(labels)
        options["negatives_per_positive"] = (1 - rate) / rate
        if data == "synthetic":
            return SyntheticRecommender(users=max(2 * self.clients, 60), items=400, mean_interactions=40, **options)
        return _DATA[data](**options)

    def module(self, source: RecommenderDataModule, *, noise: float, seed: int) -> FederatedMF:
        """The learner, with the noise of Equation 3."""
        epochs = self.protocol == "epochs"
        return FederatedMF(
            num_items=source.num_items,
            num_clients=source.num_clients,
            dim=self.dim,
            loss=self.loss,  # type: ignore[arg-type]
            clip=self.clip,
            local=LocalTraining(
                learning_rate=self.learning_rate, batch_size=self.batch, updates=None if epochs else self.updates
            ),
            server=ServerOptimizer(learning_rate=float(self.clients)),
            defenses=[RowNoise(scale=noise), *([RefuseProbes()] if self.refuse else [])],
            seed=seed,
        )


def check_rate(labels: Labels) -> float:
    """A rate of likes.

    Raises:
        InputError: it is no number in (0, 1), or exactly 1/2.
    """
    rate = labels if isinstance(labels, int | float) else -1.0
    if not 0 < rate < 1 or rate == 0.5:
        raise InputError(
            expected="labels of liked, or a rate of likes in (0, 1) other than 1/2 (Assumption 1)",
            found=str(labels),
            way_out="At exactly 1/2 no majority tells the two signs of a vector apart: give another rate.",
        )
    return float(rate)


def check_labels(labels: Mapping[str, list[Labels]]) -> None:
    """Refuses data sets and labels that there are not.

    Raises:
        InputError: a data set is unknown, a rate is no rate, or is 1/2, or a data set says nothing of dislikes.
    """
    check_names("data set", list(labels), [*_DATA, "synthetic"])
    for data, columns in labels.items():
        for column in columns:
            if column != LIKED or data != "ml-100k":
                check_rate(column)


@dataclass(frozen=True, kw_only=True)
class PreferenceTable(PaperExperiment):
    """A table on clients who like some items and dislike others.

    Attributes:
        labels: by data set, whose labels clients have: ``liked``, or a rate of likes.
        federation: how clients train.
        noises: scales of the noise of Equation 3.
        users: clients attacked, drawn at random.
    """

    families = ("identifiability",)
    labels: dict[str, list[Labels]]
    federation: Federation
    noises: list[float] = field(default_factory=lambda: [0.0])
    users: int = 200

    @classmethod
    def parse(cls, content: dict[str, Any]) -> Self:
        federation = Federation(**content.pop("federation", {}))
        return cls(data=list(content["labels"]), federation=federation, **content)

    def __post_init__(self) -> None:
        """Refuses data sets and labels that there are not, and a noise that is no number."""
        object.__setattr__(self, "noises", [as_number("a noise", value) for value in self.noises])
        check_labels(self.labels)

    def source(self, data: str, root: str | None) -> RecommenderDataModule:
        return self.federation.source(data, self.labels[data][0], root=root, seed=0)


@dataclass(frozen=True)
class People:
    """Clients with what an evaluation knows of them.

    Attributes:
        clients: ``(V,)`` client numbers, fewest labels first.
        items: ``(V, N)`` labelled items, padded with -1.
        labels: ``(V, N)`` 1 for liked, 0 for not liked or padded.
    """

    clients: Tensor
    items: Tensor
    labels: Tensor

    @functools.cached_property
    def counts(self) -> Tensor:
        """``(V,)`` number of labels, N."""
        return (self.items >= 0).sum(1)

    @functools.cached_property
    def rates(self) -> Tensor:
        """``(V,)`` preference rates, p."""
        return self.labels.double().sum(1) / self.counts

    def select(self, positions: Tensor) -> "People":
        """Those at `positions`, with padding cut to what they need."""
        width = int(self.counts[positions].max()) if len(positions) else 0
        return People(self.clients[positions], self.items[positions, :width], self.labels[positions, :width])


def everybody(source: RecommenderDataModule) -> People:
    """All clients of a source."""
    cohort = source.build_cohort(0, torch.arange(source.num_clients))
    order = cohort.counts.argsort(stable=True)
    return People(cohort.clients[order], cohort.rows[ITEM_EMBEDDING][order], cohort.examples["label"][order])


def held_out_hits(source: RecommenderDataModule, table: Tensor, users: Tensor, *, top_k: int = 10) -> Tensor:
    """Whether each client's held-out item is among the `top_k` of its candidates.

    Args:
        source: the data; it draws the candidates.
        table: item vectors ``(I, d)``.
        users: private vectors of all clients ``(C, d)``.
        top_k: length of the list.

    Returns:
        ``(C,)`` 1 or 0, NaN for a client with nothing held out.
    """
    hits = torch.full((len(users),), torch.nan)
    for batch in source.val_dataloader():
        scores = torch.einsum(
            "bkd,bd->bk", table[batch["items"].clamp(min=0)].double(), users[batch["clients"]].double()
        )
        scores = scores.masked_fill(batch["items"] < 0, -torch.inf)
        own = scores.masked_fill(~batch["target"], -torch.inf).amax(1, keepdim=True)
        # A tie counts against the client: a table of zeros ranks nothing.
        rank = ((scores >= own) & ~batch["target"]).sum(1)
        hits[batch["clients"]] = (rank < top_k).float()
    return hits
