"""Federated ranking of images: clients extract the features of images and vote on them.

References:
    [Pham25], section V.C.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from fedleak.client.cohort import Cohort
from fedleak.client.engine.fast.gradients import Parameters
from fedleak.client.engine.local_hyperparameters import LocalTraining
from fedleak.client.pointwise_descent import HIDDEN_BIAS, OUTPUT_BIAS, Items, VoteAlgorithm, as_ranker, outputs
from fedleak.client.ranking import ranker_parameters
from fedleak.core.cache import cache_folder
from fedleak.core.errors import InputError, require
from fedleak.core.ranges import NonNegativeInt, PositiveFloat, PositiveInt
from fedleak.core.seeding import generator_for
from fedleak.datamodules.images.synthetic_features import SyntheticFeatures
from fedleak.datamodules.images.voters import ImageVoters
from fedleak.defenses.base import Defense, Update
from fedleak.modules.image_features.feature_extractors import Extractor
from fedleak.modules.image_features.gallery import Gallery
from fedleak.server.image_manipulation import ImageManipulation
from fedleak.server.model_per_client import stack_models
from fedleak.training.data import data_of
from fedleak.training.federated import FederatedModule
from fedleak.training.learner import Weighting
from fedleak.training.server_optimizer import ServerOptimizer


class ImageRanker(FederatedModule):
    """Image rankers that clients train on their votes, with one set of images per round.

    The server sends each client images and a separate ranker. The client extracts features with a public network, votes
    on every image at random, and takes full-batch steps on the mean binary cross-entropy. As clients train different
    rankers, the global model does not change.

    Images and features are computed before the first round, shared among processes, and cached in a folder for resumed
    trainings and other trainings on the same images.

    Args:
        num_features: features of an item, None for the number of the extractor or of data with drawn features.
        extractor: public feature extractor.
        hidden: hidden units of the ranker, whose two layers have biases as published; 0 for a linear one without.
        ratio: images that a client votes on, as a multiple of the number of features.
        partitions: number of parts of the features: image n belongs to part ``n % partitions``; a set has equally many
            images of each part.
        manipulation: how the server manipulates the images, None for real images.
        learning_rate: learning rate of the clients' gradient descent.
        steps: local steps, each over all images.
        defenses: defences of the clients.
        weighting: whether a client's weight is its number of images or one.
        seed: seed of every draw.
        images: folder of manipulated images and features, None for ``images`` in ``FEDLEAK_CACHE``.
        batch_size: images per batch while images and features are computed.

    Raises:
        InputError: a defence changes the loss, which these clients do not support.
    """

    algorithm: VoteAlgorithm
    manipulation: ImageManipulation | None
    file_arguments: ClassVar[Mapping[str, tuple[str, ...]]] = {"images": ()}

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
        require(
            not penalties,
            "defences that change updates",
            f"{', '.join(penalties)}, which changes the loss",
            "Remove it: ImageRanker supports no penalty in the loss.",
        )
        self.algorithm = VoteAlgorithm(learning_rate=learning_rate, full_batch_steps=steps)
        self.extractor = extractor
        self.manipulation = manipulation
        self.hidden_units = hidden
        self.ratio = ratio
        self.partitions = partitions
        self.images = images
        self.batch_size = batch_size
        self._gallery: tuple[Gallery, Tensor] | None = None
        self.build_with(num_features=num_features)

    def build(self, num_features: int) -> None:
        """Global model of zeros, with the shapes of a client's ranker."""
        self.num_features = num_features
        layers: dict[str, nn.ParameterDict] = {}
        for name, value in self._fresh(0).items():
            layer, _, kind = name.partition(".")
            if layer not in layers:
                layers[layer] = nn.ParameterDict()
            layers[layer][kind] = nn.Parameter(torch.zeros_like(value))
        for layer, parameters in layers.items():
            self.register_module(layer, parameters)

    def _size(self, name: str, data: object) -> Any:
        if isinstance(data, ImageVoters):
            return self.extractor.features or self.extractor.build().num_features
        return super()._size(name, data)

    def gallery(self, data: ImageVoters, *, progress: bool = False) -> Gallery:
        """Images that the server sends.

        Args:
            data: the original images.
            progress: whether to show a progress bar.
        """
        folder = cache_folder() / "images"
        if self.images:
            folder = Path(self.images)
        return Gallery(
            photos=data.photos,
            numbers=data.numbers,
            extractor=self.extractor,
            manipulation=self.manipulation,
            partitions=self.partitions,
            seed=self.seed,
            folder=folder,
            batch_size=self.batch_size,
            progress=progress,
        )

    def on_fit_start(self) -> None:
        """Computes the images and their features, shared among processes."""
        super().on_fit_start()
        data = self.data
        if isinstance(data, ImageVoters):
            gallery = self.gallery(data, progress=self.trainer.progress_bar_callback is not None)
            self._gallery = gallery, gallery.features(self.device, self.trainer)

    @property
    def data(self) -> ImageVoters | SyntheticFeatures:
        """The Trainer's data module."""
        data = data_of(self.trainer)
        if not isinstance(data, ImageVoters | SyntheticFeatures):
            raise InputError(
                expected="data whose users vote on images, or on items of drawn features",
                found=type(data).__name__,
                way_out="Give --data ImageNet, SyntheticPhotos or SyntheticFeatures.",
            )
        return data

    def interact(self, cohort: Cohort, model: Parameters) -> Cohort:
        """Votes of the clients on the images of the round.

        Returns:
            A cohort whose examples are votes ``vote (C, R)``, with shared ``features (R, F)``.
        """
        features = self._items(cohort.round).to(self.device)
        votes = []
        for client in cohort.clients.tolist():
            generator = generator_for(self.seed, "votes", *self._key(client))
            votes.append(torch.rand(len(features), generator=generator).round())  # each image with probability one half
        vote = torch.stack(votes).to(features) if votes else features.new_zeros(0, len(features))
        mask = torch.ones_like(vote, dtype=torch.bool)
        return dataclasses.replace(cohort, examples={"vote": vote}, mask=mask, shared={"features": features})

    def served(self, cohort: Cohort) -> dict[str, Tensor]:
        items = len(cohort.shared["features"])
        return {"served": torch.arange(items, device=self.device).expand(len(cohort), -1)}

    def item_features(self, cohort: Cohort) -> Tensor:
        return cohort.shared["features"]

    def client_models(self, cohort: Cohort) -> Parameters:
        drawn = [self._fresh(client) for client in cohort.clients.tolist()]
        return stack_models(drawn, self.public_parameters())

    def truth(self, cohort: Cohort) -> dict[str, Tensor]:
        return {"labels": cohort.examples["vote"]}

    def local_updates(self, cohort: Cohort, model: Parameters, willing: Tensor) -> tuple[Update, Tensor]:
        sent = self.client_models(cohort)
        votes = cohort.examples["vote"]
        features = cohort.shared["features"].expand(len(cohort), -1, -1)
        ranker = as_ranker(sent)
        probabilities = outputs(ranker, Items(features, biases=ranker.biases)).probabilities
        # The loss is that of the received rankers, before the first step.
        update = Update(self.algorithm.simulate_votes(sent, features, votes), clients=cohort.clients)
        return update, nn.functional.binary_cross_entropy(probabilities, votes)

    def as_deltas(self, update: Update, cohort: Cohort, model: Parameters) -> Update:
        """Zeros, because the updates of different rankers cannot be averaged."""
        zeros = {name: torch.zeros_like(value) for name, value in update.deltas.items()}
        return dataclasses.replace(update, deltas=zeros)

    def _items(self, round_number: int) -> Tensor:
        """``(R, F)`` features of a round's items."""
        data = self.data
        items = self.num_features * self.ratio
        # The items of a round depend on its number among the item sets, and on nothing that a manipulation changes.
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
        generator = generator_for(self.seed, "voters-model", *self._key(client))
        drawn = ranker_parameters(self.num_features, self.hidden_units, generator, scaled=True)
        if not self.hidden_units:
            return drawn
        # Like the weights of `ranker_parameters`: uniform within 1 / sqrt(number of inputs of the layer).
        hidden_bias = torch.rand(self.hidden_units, generator=generator) * 2 - 1
        output_bias = torch.rand(1, generator=generator) * 2 - 1
        scaled = {
            HIDDEN_BIAS: hidden_bias / self.num_features**0.5,
            OUTPUT_BIAS: output_bias / self.hidden_units**0.5,
        }
        return drawn | scaled

    def _key(self, client: int) -> tuple[int, int, int]:
        """Key of a client's draws, which do not depend on the manipulation."""
        return self.hidden_units, self.ratio, client
