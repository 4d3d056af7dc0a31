"""A federated ranker of images: each client votes on images whose features it extracts itself (RAIFLE, section V.C)."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from datamodules.base import FederatedDataModule
from datamodules.cohort import Cohort
from datamodules.images.synthetic_features import SyntheticFeatures
from datamodules.images.voters import ImageVoters
from datamodules.io.array_cache import cache_folder
from defenses.base import Defense, Update
from modules.engine.local_hyperparameters import LocalTraining
from modules.engine.tasks import Parameters
from modules.federated import FederatedModule, Weighting
from modules.image_manipulation.base import ImageManipulation
from modules.image_manipulation.feature_extractors import Extractor
from modules.image_manipulation.gallery import Gallery
from modules.learners.image_ranker_learner import ImageRankerLearner
from modules.nets.ranker import ranker_parameters
from modules.server import ServerOptimizer
from protocol.errors import InputError
from protocol.pointwise_descent import Items, as_ranker, outputs
from protocol.seeding import generator_for
from ranges import NonNegativeInt, PositiveFloat, PositiveInt


class ImageRanker(FederatedModule):
    """Rankers of images, which clients train on their votes: on one set of images in each round.

    The server sends every client images and a ranker of its own; the client extracts the features with a public
    network, votes on every image at random, and makes full-batch steps on the mean binary cross-entropy. As no two
    clients train the same ranker, the global model stays as it is: what leaks is in the updates.

    Images and features are made before the first round, every process its share, and kept in a folder, so that a
    training that was stopped, or another one on the same images, goes on with them.

    Args:
        num_features: features of an item, None for those of the extractor, or of data that draw features.
        extractor: the public network.
        hidden: hidden units of the ranker, 0 for a linear one.
        ratio: images that a client votes on, as a multiple of the number of features.
        partitions: parts of the features: image n belongs to part n modulo the parts, and a set has as many of each.
        manipulation: what the server does to the images, None for real ones.
        learning_rate: of the clients' gradient descent.
        steps: of the clients, each over all images.
        defenses: what clients do to protect themselves.
        weighting: whether a client counts by its images or as one.
        seed: seed of every draw.
        images: folder of manipulated images and features, None for ``images`` in ``FEDLEAK_CACHE``.
        batch_size: images at once on each device while they are made.

    Raises:
        InputError: a defence is part of the loss, which these clients do not have.
    """

    def __init__(
        self,
        *,
        num_features: PositiveInt | None = None,
        extractor: Extractor = Extractor(),  # noqa: B008 - frozen
        hidden: NonNegativeInt = 0,
        ratio: PositiveInt = 1,
        partitions: PositiveInt = 2,
        manipulation: ImageManipulation | None = None,
        learning_rate: PositiveFloat = 0.01,
        steps: PositiveInt = 5,
        defenses: Sequence[Defense] = (),
        weighting: Weighting = "examples",
        seed: int = 0,
        images: str | None = None,
        batch_size: PositiveInt = 64,
    ) -> None:
        local = LocalTraining(learning_rate=learning_rate, epochs=steps)
        super().__init__(local=local, server=ServerOptimizer(), defenses=defenses, weighting=weighting, seed=seed)
        penalties = [type(defense).__name__ for defense in defenses if type(defense).penalty is not Defense.penalty]
        if penalties:
            raise InputError(
                expected="defences that change updates",
                found=f"{', '.join(penalties)}, which changes the loss",
                way_out="Remove it: clients that rank images descend on the cross-entropy alone.",
            )
        self.learner = ImageRankerLearner(learning_rate=learning_rate, full_batch_steps=steps)
        self.extractor, self.manipulation = extractor, manipulation
        self.hidden_units, self.ratio, self.partitions = hidden, ratio, partitions
        self.images, self.batch_size = images, batch_size
        self._gallery: tuple[Gallery, Tensor] | None = None
        self.build_with(num_features=num_features)

    def build(self, num_features: int) -> None:
        """The global model, all zeros, of the shape of a client's ranker."""
        self.num_features = num_features
        for name, value in self._fresh(0).items():
            layer, _, kind = name.partition(".")
            self.register_module(layer, nn.ParameterDict({kind: nn.Parameter(torch.zeros_like(value))}))

    def _size(self, name: str, data: object) -> Any:
        """Images have as many features as the extractor."""
        if isinstance(data, ImageVoters):
            return self.extractor.features or self.extractor.build().num_features
        return super()._size(name, data)

    @property
    def server_manipulation(self) -> str | None:
        """Name of the manipulation of images."""
        return None if self.manipulation is None else self.manipulation.name

    def learner_description(self) -> dict[str, Any]:
        return {"name": "image-ranker", "arguments": dataclasses.asdict(self.learner)}

    def gallery(self, data: ImageVoters, *, progress: bool = False) -> Gallery:
        """The images that the server sends.

        Args:
            data: whose images.
            progress: show a bar while they are made.
        """
        return Gallery(
            photos=data.photos,
            numbers=data.numbers,
            extractor=self.extractor,
            manipulation=self.manipulation,
            partitions=self.partitions,
            seed=self.seed,
            folder=Path(self.images) if self.images else cache_folder() / "images",
            batch_size=self.batch_size,
            progress=progress,
        )

    def on_fit_start(self) -> None:
        """Makes the images and their features, all processes together."""
        super().on_fit_start()
        data = self.data
        if isinstance(data, ImageVoters):
            gallery = self.gallery(data, progress=self.trainer.progress_bar_callback is not None)
            self._gallery = gallery, gallery.features(self.device, self.trainer)

    @property
    def data(self) -> ImageVoters | SyntheticFeatures:
        """The data of the training.

        Raises:
            InputError: nobody votes in it.
        """
        data: FederatedDataModule | None = getattr(self.trainer, "datamodule", None)
        if not isinstance(data, ImageVoters | SyntheticFeatures):
            raise InputError(
                expected="data whose users vote on images, or on items of drawn features",
                found=type(data).__name__,
                way_out="Give --data ImageNet, SyntheticPhotos or SyntheticFeatures.",
            )
        return data

    def interact(self, cohort: Cohort, model: Parameters) -> Cohort:
        """The server sends the images of the round, the clients extract the features and vote.

        Returns:
            A cohort whose examples are votes ``vote (C, R)``, with ``features (R, F)`` shared by all.
        """
        features = self._items(cohort.round).to(self.device)
        votes = [
            torch.rand(len(features), generator=generator_for(self.seed, "votes", *self._key(client))).round()
            for client in cohort.clients.tolist()
        ]
        vote = torch.stack(votes).to(features) if votes else features.new_zeros(0, len(features))
        mask = torch.ones_like(vote, dtype=torch.bool)
        return dataclasses.replace(cohort, examples={"vote": vote}, mask=mask, shared={"features": features})

    def served(self, cohort: Cohort) -> dict[str, Tensor]:
        """The images of the round, by their places in it."""
        items = len(cohort.shared["features"])
        return {"served": torch.arange(items, device=self.device).expand(len(cohort), -1)}

    def item_features(self, cohort: Cohort) -> Tensor:
        return cohort.shared["features"]

    def client_models(self, cohort: Cohort) -> Parameters:
        """A ranker for each client."""
        drawn = [self._fresh(client) for client in cohort.clients.tolist()]
        return {
            name: torch.stack([own[name] for own in drawn]).to(value) if drawn else value.new_zeros(0, *value.shape)
            for name, value in self.public_parameters().items()
        }

    def truth(self, cohort: Cohort) -> dict[str, Tensor]:
        """The votes."""
        return {"labels": cohort.examples["vote"]}

    def local_updates(self, cohort: Cohort, model: Parameters, willing: Tensor) -> tuple[Update, Tensor]:
        sent, votes = self.client_models(cohort), cohort.examples["vote"]
        features = cohort.shared["features"].expand(len(cohort), -1, -1)
        said = outputs(as_ranker(sent), Items(features)).probabilities
        update = Update(self.learner.simulate_votes(sent, features, votes), clients=cohort.clients)
        return update, nn.functional.binary_cross_entropy(said, votes)

    def as_deltas(self, update: Update, cohort: Cohort, model: Parameters) -> Update:
        """Nothing: updates of different rankers have no mean that would be one of the global model."""
        return dataclasses.replace(update, deltas={n: torch.zeros_like(v) for n, v in update.deltas.items()})

    def _items(self, round_number: int) -> Tensor:
        """``(R, F)`` features of a round's items."""
        data, items = self.data, self.num_features * self.ratio
        key = self.ratio, round_number % data.item_sets
        if self._gallery is not None:
            gallery, features = self._gallery
            return features[gallery.draw(items, generator_for(self.seed, "items", *key))]
        assert isinstance(data, SyntheticFeatures)
        generator = generator_for(self.seed, "drawn features", *key)
        if self.manipulation is None:
            return data.draw(items, generator=generator)
        return self.manipulation.drawn(items, self.num_features, partitions=self.partitions, generator=generator)

    def _fresh(self, client: int) -> Parameters:
        """The ranker that a client is sent."""
        generator = generator_for(self.seed, "voters-model", *self._key(client))
        return ranker_parameters(self.num_features, self.hidden_units, generator, scaled=True)

    def _key(self, client: int) -> tuple[int, int, int]:
        """Of a client's draws, which are the same whatever is done to the images."""
        return self.hidden_units, self.ratio, client
