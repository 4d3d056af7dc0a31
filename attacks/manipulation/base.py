"""Adversarial data manipulation: features that a malicious server sends instead of the real ones."""

import abc
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

import torch
from torch import Generator, Tensor

from protocol.class_paths import check_declared
from protocol.ranges import check_fields

Model = Mapping[str, Tensor]


class Manipulation(abc.ABC):
    """Base class of adversarial data manipulations: how the server chooses the features that clients train on.

    Attributes:
        name: the name in a recording.

    Raises:
        InputError: a subclass has no name.

    References:
        Pham, Kulkarni and Houmansadr, "RAIFLE: Reconstruction Attacks on Interaction-based Federated Learning with
        Adversarial Data Manipulation", NDSS 2025, arXiv:2310.19163, section III.C.
    """

    name: ClassVar[str]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        check_declared(cls, Manipulation)

    def __post_init__(self) -> None:
        if dataclasses.is_dataclass(self):
            check_fields(self)

    @property
    def knows(self) -> Literal["lists", "candidates"]:
        """Documents that the server chooses features for: those of its drawn lists, or all of a query."""
        return "lists"

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

    def of_cohort(self, models: Model, features: Tensor, mask: Tensor, *, generators: Sequence[Generator]) -> Tensor:
        """The features sent to the clients of a cohort, each with its own model ``(C, *shape)`` and generator.

        See `features`.
        """
        sent = [
            self.features(_own(models, c), features[c : c + 1], mask[c : c + 1], generator=generator)
            for c, generator in enumerate(generators)
        ]
        return torch.cat(sent) if sent else features

    def of_candidates(
        self, models: Model, pool: Tensor, document: Tensor, place: Tensor, *, generators: Sequence[Generator]
    ) -> Tensor:
        """Features ``(C, Q, L, F)`` of displayed documents, chosen for all candidates without knowing which are shown.

        Args:
            models: each client's model, ``(C, *shape)``.
            pool: ``(M, F)`` real features.
            document: ``(C, Q, D)`` positions of each query's candidates in `pool`, padded with -1.
            place: ``(C, Q, L)`` positions of the displayed documents among the candidates, not given to `features`.
            generators: one per client.
        """
        mask, width = document >= 0, pool.shape[1]
        sent = [pool.new_zeros(0, *place.shape[1:], width)]
        for c, generator in enumerate(generators):
            real = pool[document[c : c + 1].clamp(min=0)] * mask[c : c + 1, ..., None]
            every = self.features(_own(models, c), real, mask[c : c + 1], generator=generator)
            sent.append(every.gather(2, place[c : c + 1, ..., None].expand(-1, -1, -1, width)))
        return torch.cat(sent)


def _own(models: Model, client: int) -> Model:
    return {name: value[client] for name, value in models.items()}
