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
        views = [without_refuted_noise(round_view) for round_view in (*view.earlier, view)]
        for round_view in views:
            if not torch.equal(round_view.pseudonyms, view.pseudonyms):
                raise ViewError(f"round {round_view.round}: expected the same victims in the same order, got others")
        estimates = [self.estimate(round_view, generator=generator) for round_view in views]
        return self.combine(estimates)

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
        mean = torch.stack([estimate.proportions for estimate in estimates]).mean(0)
        present = torch.stack([estimate.present for estimate in estimates]).any(0)
        return certain(mean, present)


def certain(proportions: Tensor, present: Tensor) -> CompositionEstimate:
    """An estimate without intervals; the proportions are normalised."""
    total = proportions.sum(1, keepdim=True)
    no_interval = torch.full_like(proportions, torch.nan)
    return CompositionEstimate(
        proportions=proportions / total,
        low=no_interval,
        high=no_interval,
        present=present,
    )


def by_information(estimates: Sequence[CompositionEstimate]) -> CompositionEstimate:
    """Mean over rounds, weighted for each class by the inverse variance that the interval implies.

    The errors of the rounds are assumed to be independent. A round in which a class is null has no weight for this
    class if another round has it present.
    """
    proportions = torch.stack([estimate.proportions for estimate in estimates])
    half_widths = torch.stack([(estimate.high - estimate.low) / 2 for estimate in estimates]).clamp(min=1e-6)
    present_by_round = torch.stack([estimate.present for estimate in estimates])
    present = present_by_round.any(0)
    # The half-width is a multiple of the standard error: its inverse square is the information, up to one factor.
    information = half_widths**-2 * present_by_round
    total = information.sum(0).where(present, 1)
    mean = (proportions * information).sum(0) / total
    mean = mean / mean.sum(1, keepdim=True)
    # Information adds up, so the combined half-width is 1 / sqrt(sum of 1 / h^2); a null class has no interval.
    half_width = total**-0.5 * present
    return CompositionEstimate(
        proportions=mean,
        low=(mean - half_width).clamp(0, 1),
        high=(mean + half_width).clamp(0, 1),
        present=present,
    )


def trained_models(view: RoundView, deltas: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """``(B, *shape)`` models after local training that changes the global model by these deltas."""
    count = len(next(iter(deltas.values())))
    models = {}
    for name, parameter in view.model.items():
        if name in deltas:
            models[name] = parameter + deltas[name]
        else:
            models[name] = parameter.expand(count, *parameter.shape)
    return models


@torch.no_grad()
def network_outputs(
    algorithm: ClassifierAlgorithm, models: Mapping[str, Tensor], images: Tensor
) -> tuple[Tensor, Tensor]:
    """Inputs of the last layer ``(B, M, F)`` and logits ``(B, M, K)`` of models ``(B, *shape)`` for M images.

    Batch norms use the statistics of these images.
    """
    network = copy.deepcopy(algorithm.template)
    mask_batches(network, None)
    inputs = algorithm.read(images)
    features: list[Tensor] = []
    logits: list[Tensor] = []
    # The last layer's input is caught on its way in.
    network.get_submodule(algorithm.output_layer).register_forward_pre_hook(
        lambda _, arguments: features.append(arguments[0])
    )
    for number in range(len(next(iter(models.values())))):
        parameters = {name: values[number] for name, values in algorithm.trained(models).items()}
        logits.append(functional_call(network, parameters, (inputs,)))
    return torch.stack(features), torch.stack(logits)
