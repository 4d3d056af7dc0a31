"""Adversarial data manipulation: features that a malicious server sends instead of the real ones."""

import abc
import dataclasses
from collections.abc import Mapping, Sequence
from typing import ClassVar

import torch
from torch import Generator, Tensor

from protocol.ranges import check_fields

Model = Mapping[str, Tensor]


class Manipulation(abc.ABC):
    """Base class of adversarial data manipulations: how the server chooses the features that clients train on.

    Attributes:
        name: the name in a recording.

    References:
        Pham, Kulkarni and Houmansadr, "RAIFLE: Reconstruction Attacks on Interaction-based Federated Learning with
        Adversarial Data Manipulation", NDSS 2025, arXiv:2310.19163, section III.C.
    """

    name: ClassVar[str]

    def __post_init__(self) -> None:
        if dataclasses.is_dataclass(self):
            check_fields(self)

    def knowing(self, document: Tensor) -> "Manipulation":
        """The manipulation for a target document with real features ``(F,)``, retrieved privately by some clients."""
        return self

    @abc.abstractmethod
    def features(self, model: Model, features: Tensor, mask: Tensor, *, generator: Generator) -> Tensor:
        """The features sent.

        Args:
            model: the global model that is sent with them, ``shape`` each.
            features: ``(C, Q, L, F)`` real features of the shown documents.
            mask: ``(C, Q, L)`` True for documents; padding comes last.
            generator: source of randomness.

        Returns:
            ``(C, Q, L, F)``, zero where padded.
        """

    def of_cohort(self, model: Model, features: Tensor, mask: Tensor, *, generators: Sequence[Generator]) -> Tensor:
        """The features sent to the clients of a cohort, each with its own generator; see `features`."""
        sent = [
            self.features(model, features[client : client + 1], mask[client : client + 1], generator=generator)
            for client, generator in enumerate(generators)
        ]
        return torch.cat(sent) if sent else features
