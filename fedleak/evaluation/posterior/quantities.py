"""Bits of attacks whose answers are vectors of numbers, and their results with the prior."""

import dataclasses
import math
from collections.abc import Iterator

import torch
from torch import Tensor

from fedleak.core.answers import Quantities
from fedleak.evaluation.evaluation import Evaluation
from fedleak.evaluation.labels import combined_label, prior_label
from fedleak.evaluation.posterior.answer_rows import FEWEST_PEOPLE
from fedleak.evaluation.posterior.gaussian import vector_posterior
from fedleak.evaluation.posterior.posterior_metrics import (
    Answers,
    only_metrics,
    posterior_metrics,
    source_of_groups,
    with_extra_metrics,
)
from fedleak.evaluation.posterior.shares import share_posterior
from fedleak.evaluation.runner import ScoreContext


def evaluate_quantities(answers: Answers, seed: int) -> Iterator[Evaluation]:
    """Results of the attacks on one question whose answers are vectors: bits, and medians or means with the prior."""
    with_baseline = False
    for label, parts in answers.items():
        attack = parts[0].attack
        if attack.baseline:
            continue
        vectors = [part.answers for part in parts if isinstance(part.answers, Quantities)]
        inferred = torch.cat([answer.inferred for answer in vectors]).double()
        true = torch.cat([answer.true for answer in vectors]).double()
        grid = torch.cat([answer.grid for answer in vectors]).double()
        people = torch.cat([_people_of(part.context) for part in parts])
        # Covariances of fewer people than numbers are guesses.
        if len(torch.unique(people)) < max(FEWEST_PEOPLE, 2 * true.shape[1]):
            continue
        # Shares of clients with a known number of examples are on a grid: whole counts.
        posterior_of = share_posterior if bool((grid > 0).all()) else vector_posterior
        posterior = posterior_of(inferred, true, grid, people, generator=source_of_groups(parts, seed))
        metrics = posterior_metrics(
            bits=posterior.bits,
            parts=parts,
            error=posterior.calibration_error,
            possible=None if posterior.left is None else _possible_counts(grid, true.shape[1]),
            matches=posterior.matches,
        )
        if posterior.left is not None:
            metrics["bits-left"] = posterior.left
        start = 0
        for part in parts:
            assert isinstance(part.answers, Quantities)
            of_view = slice(start, start + len(part.context.victims))
            start = of_view.stop
            extra = {name: values[of_view] for name, values in metrics.items()}
            yield only_metrics(part, label, extra)
            if attack.with_prior is None:
                continue
            combined = part.answers.rescored(posterior.mean[of_view])
            yield with_extra_metrics(part, combined_label(label), combined, extra)
            # The prior alone is the same for all attacks on the question.
            if not with_baseline:
                info = dataclasses.replace(part.info, role="baseline", comparison="prior")
                baseline = dataclasses.replace(part, info=info)
                unknown = {}
                if posterior.left is not None:
                    unknown["bits-left"] = (posterior.bits + posterior.left)[of_view]
                alone = part.answers.rescored(posterior.prior[of_view])
                yield with_extra_metrics(baseline, prior_label(part.info.family), alone, unknown)
        with_baseline = with_baseline or attack.with_prior is not None


def _people_of(context: ScoreContext) -> Tensor:
    """``(V,)`` client numbers of the victims, or their pseudonyms where these are unknown."""
    if context.people is None:
        return context.victims
    return context.people


def _possible_counts(grid: Tensor, classes: int) -> Tensor:
    """``(V,)`` logarithm to base 2 of the number of vectors of class counts of clients with ``1 / grid`` examples."""
    examples = 1 / grid
    # (N + K - 1)! / (N! (K - 1)!) vectors of K whole counts have the sum N.
    ways = torch.lgamma(examples + classes) - torch.lgamma(examples + 1) - math.lgamma(classes)
    bits: Tensor = ways / math.log(2)
    return bits
