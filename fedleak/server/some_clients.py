"""A manipulation of a few clients of each round."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass

import torch
from torch import Generator, Tensor

from fedleak.core.ranges import NonNegativeInt
from fedleak.server.deviation import Notice
from fedleak.server.feature_manipulation import FeatureManipulation, Model, check_knows_lists


@dataclass(frozen=True)
class SomeClients(FeatureManipulation):
    """A manipulation of the first clients of every cohort, which limits the loss of utility.

    Args:
        inner: the manipulation.
        clients: number of manipulated clients in each cohort.

    References:
        [Pham25], section VIII.A.
    """

    name = "some-clients"
    does = "manipulates a few clients of each round, and shows all others the real features"
    noticed = (
        Notice(
            "client", "a manipulated client, by the checks of the inner manipulation; its peers are honest references"
        ),
    )
    references = ("Pham25, section VIII.A",)

    inner: FeatureManipulation
    _: KW_ONLY
    clients: NonNegativeInt

    def __post_init__(self) -> None:
        super().__post_init__()
        check_knows_lists(self.inner)

    def features(self, model: Model, features: Tensor, mask: Tensor, *, generator: Generator) -> Tensor:
        return self.inner.features(model, features, mask, generator=generator)

    def of_cohort(self, models: Model, features: Tensor, mask: Tensor, *, generators: Sequence[Generator]) -> Tensor:
        manipulated = slice(0, self.clients)
        models_of_few = {name: parameter[manipulated] for name, parameter in models.items()}
        sent = self.inner.of_cohort(
            models_of_few,
            features[manipulated],
            mask[manipulated],
            generators=generators[manipulated],
        )
        return torch.cat([sent, features[self.clients :]])
