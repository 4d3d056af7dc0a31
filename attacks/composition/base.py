"""The base class of composition attacks: one round or several, the last layer's change and the auxiliary images."""

import abc
import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor
from torch.func import functional_call

from fedleak.attacks.composition.estimates import CompositionEstimate
from fedleak.client.last_layer import output_layer
from fedleak.client.nets.batch_norm import mask_batches
from fedleak.client.network import ClassifierAlgorithm
from fedleak.core.attack import Attack, Misfit
from fedleak.core.declared_noise import without_refuted_noise
from fedleak.core.errors import ViewError
from fedleak.core.estimates import Estimate
from fedleak.core.view import RoundView, View

Rounds = Literal["last", "all"]


@dataclass(frozen=True, kw_only=True)
class CompositionAttack(Attack):
    """Base class of attacks that estimate the class shares from each round separately.

    They do not expect noise that clients declare and that their updates are too short to hold.

    Args:
        rounds: ``last`` uses the round of the view; ``all`` combines it with the view's earlier rounds.
    """

    family = "composition"
    estimates: ClassVar[type[Estimate]] = CompositionEstimate

    rounds: Rounds = "last"

    def run(self, view: RoundView, *, generator: torch.Generator) -> CompositionEstimate:
        if self.rounds == "last":
            return self.estimate(without_refuted_noise(view), generator=generator)
        views = [without_refuted_noise(one) for one in (*view.earlier, view)]
        for one in views:
            if not torch.equal(one.pseudonyms, view.pseudonyms):
                raise ViewError(f"round {one.round}: expected the same victims in the same order, got others")
        return self.combine([self.estimate(one, generator=generator) for one in views])

    def misfit(self, view: View, truth: Mapping[str, Tensor]) -> Misfit | None:
        """That the model's last layer has other classes than the ground truth counts."""
        try:
            layer = output_layer(view)
            classes = view.deltas[f"{layer}.bias"].shape[1]
        except (ViewError, KeyError) as error:
            return Misfit(str(error))
        counted = truth["class_counts"].shape[1]
        if classes == counted:
            return None
        return Misfit(
            f"the model's last layer, {layer!r}, has outputs for {classes} classes, and class_counts in truth/ counts"
            f" {counted}",
            "if another layer is the last, give the parameters in the network's order",
        )

    @abc.abstractmethod
    def estimate(self, view: RoundView, *, generator: torch.Generator) -> CompositionEstimate:
        """The estimate from one round."""

    def combine(self, estimates: Sequence[CompositionEstimate]) -> CompositionEstimate:
        """Mean over the rounds (Decaf, section IV-B); a class is present if it is present in any round."""
        mean = torch.stack([e.proportions for e in estimates]).mean(0)
        return certain(mean, torch.stack([e.present for e in estimates]).any(0))


def certain(proportions: Tensor, present: Tensor) -> CompositionEstimate:
    """An estimate without intervals; the proportions are normalised."""
    total = proportions.sum(1, keepdim=True)
    nothing = torch.full_like(proportions, torch.nan)
    return CompositionEstimate(proportions=proportions / total, low=nothing, high=nothing, present=present)


def by_information(estimates: Sequence[CompositionEstimate]) -> CompositionEstimate:
    """Mean over rounds, weighted for each class by the inverse variance that the interval implies.

    The errors of the rounds are assumed to be independent. A round in which a class is null has no weight for this
    class if another round has it present.
    """
    centre = torch.stack([e.proportions for e in estimates])
    half = torch.stack([(e.high - e.low) / 2 for e in estimates]).clamp(min=1e-6)
    found = torch.stack([e.present for e in estimates])
    present = found.any(0)
    information = half**-2 * found
    total = information.sum(0).where(present, 1)
    mean = (centre * information).sum(0) / total
    mean = mean / mean.sum(1, keepdim=True)
    width = total**-0.5 * present
    return CompositionEstimate(
        proportions=mean, low=(mean - width).clamp(0, 1), high=(mean + width).clamp(0, 1), present=present
    )


def trained_models(view: RoundView, deltas: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """``(B, *shape)`` models after local training that changes the global model by these deltas."""
    count = len(next(iter(deltas.values())))
    return {n: v + deltas[n] if n in deltas else v.expand(count, *v.shape) for n, v in view.model.items()}


@torch.no_grad()
def network_outputs(
    algorithm: ClassifierAlgorithm, models: Mapping[str, Tensor], images: Tensor
) -> tuple[Tensor, Tensor]:
    """Inputs of the last layer ``(B, M, F)`` and logits ``(B, M, K)`` of models ``(B, *shape)`` for M images.

    Batch norms use the statistics of these images.
    """
    network, features, logits = copy.deepcopy(algorithm.template), list[Tensor](), []
    mask_batches(network, None)
    network.get_submodule(algorithm.output_layer).register_forward_pre_hook(lambda _, given: features.append(given[0]))
    for position in range(len(next(iter(models.values())))):
        own = {name: value[position] for name, value in algorithm.trained(models).items()}
        logits.append(functional_call(network, own, (images,)))
    return torch.stack(features), torch.stack(logits)
