"""Adversarial data manipulation: features that a malicious server sends instead of the real ones."""

import abc
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Generator, Tensor

from fedleak.server.deviation import Deviation

Model = Mapping[str, Tensor]


@dataclass(frozen=True, kw_only=True, eq=False)
class FeatureManipulation(Deviation, abc.ABC):
    """Base class of manipulations of features: how the server chooses the features that clients train on.

    References:
        [Pham25], section III.C.
    """

    part = "shows"

    @property
    def knows(self) -> Literal["lists", "candidates"]:
        """Documents that the server chooses features for: those of its drawn lists, or all of a query."""
        return "lists"

    def knowing(self, document: Tensor) -> "FeatureManipulation":
        """The manipulation for a target document with real features ``(F,)``, retrieved privately by some clients."""
        return self

    @abc.abstractmethod
    def features(self, model: Model, features: Tensor, mask: Tensor, *, generator: Generator) -> Tensor:
        """The features sent, ``(C, Q, L, F)``, zero where padded.

        Args:
            model: the global model that is sent with them, ``shape`` each.
            features: ``(C, Q, L, F)`` real features of the shown documents.
            mask: ``(C, Q, L)`` True for documents; padding comes last.
            generator: source of randomness.
        """

    def of_cohort(self, models: Model, features: Tensor, mask: Tensor, *, generators: Sequence[Generator]) -> Tensor:
        """The features sent to the clients of a cohort, each with its own model ``(C, *shape)`` and generator.

        See `features`.
        """
        sent = []
        for client, generator in enumerate(generators):
            row = slice(client, client + 1)
            model = _model_of(models, client)
            sent.append(self.features(model, features[row], mask[row], generator=generator))
        return torch.cat(sent) if sent else features

    def of_candidates(
        self, models: Model, pool: Tensor, document: Tensor, shown: Tensor, *, generators: Sequence[Generator]
    ) -> Tensor:
        """Features ``(C, Q, L, F)`` of displayed documents, chosen for all candidates without knowing which are shown.

        Args:
            models: each client's model, ``(C, *shape)``.
            pool: ``(M, F)`` real features.
            document: ``(C, Q, D)`` positions of each query's candidates in `pool`, padded with -1.
            shown: ``(C, Q, L)`` positions of the displayed documents among the candidates, not given to `features`.
            generators: one per client.
        """
        mask = document >= 0
        width = pool.shape[1]
        sent = [pool.new_zeros(0, *shown.shape[1:], width)]
        for client, generator in enumerate(generators):
            row = slice(client, client + 1)
            real = pool[document[row].clamp(min=0)] * mask[row, ..., None]
            # Features of all candidates, of which only the displayed ones are sent.
            of_candidates = self.features(_model_of(models, client), real, mask[row], generator=generator)
            index = shown[row, ..., None].expand(-1, -1, -1, width)
            sent.append(of_candidates.gather(2, index))
        return torch.cat(sent)


def _model_of(models: Model, client: int) -> Model:
    return {name: parameter[client] for name, parameter in models.items()}


def check_knows_lists(inner: FeatureManipulation) -> None:
    """Refuses a manipulation that is given all candidates, because those around it are given the lists."""
    if inner.knows != "lists":
        raise ValueError(f"expected an inner manipulation that knows the lists, got {inner.name} of all candidates")
