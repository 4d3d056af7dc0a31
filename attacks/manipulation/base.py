"""Adversarial data manipulation: what the server sends instead of the real features (RAIFLE, section III.C)."""

import abc
import dataclasses
from collections.abc import Mapping, Sequence
from typing import ClassVar

import torch
from torch import Tensor

from ranges import check_fields


class Manipulation(abc.ABC):
    """A way of the server to choose the features that clients train on.

    Attributes:
        name: the name under which it is recorded.
    """

    name: ClassVar[str]

    def __post_init__(self) -> None:
        """Refuses impossible options."""
        if dataclasses.is_dataclass(self):
            check_fields(self)

    def knowing(self, document: Tensor) -> "Manipulation":
        """The manipulation by a server that waits for one document, which some clients retrieve in private.

        Args:
            document: ``(F,)`` its real features.
        """
        return self

    @abc.abstractmethod
    def features(
        self, model: Mapping[str, Tensor], features: Tensor, mask: Tensor, *, generator: torch.Generator
    ) -> Tensor:
        """The features sent.

        Args:
            model: the global model that is sent with them, ``shape`` each.
            features: ``(C, Q, L, F)`` real features of the shown documents.
            mask: ``(C, Q, L)`` True for documents; padding comes last.
            generator: source of randomness.

        Returns:
            ``(C, Q, L, F)``, zero where padded.
        """

    def of_cohort(
        self, model: Mapping[str, Tensor], features: Tensor, mask: Tensor, *, generators: Sequence[torch.Generator]
    ) -> Tensor:
        """The features sent to the clients of a cohort, each drawn with a generator of its own; see `features`."""
        sent = [
            self.features(model, features[client : client + 1], mask[client : client + 1], generator=generator)
            for client, generator in enumerate(generators)
        ]
        return torch.cat(sent) if sent else features
