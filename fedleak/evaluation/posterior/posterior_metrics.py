"""Metrics of posteriors as results: bits and what bounds them, alone or with an attack's other metrics."""

import dataclasses
from collections.abc import Sequence

import torch
from torch import Tensor

from fedleak.core.estimates import Scores
from fedleak.core.seeding import generator_for
from fedleak.evaluation.evaluation import Evaluation
from fedleak.evaluation.posterior.matching import Matches
from fedleak.evaluation.runner import AttackAnswers, bounds, tabulated

Answers = dict[str, list[AttackAnswers]]
"""What attacks on one question say of the answers, by label."""


def source_of_groups(parts: Sequence[AttackAnswers], seed: int) -> torch.Generator:
    """Source of the groups of people, the same for all attacks on a question."""
    return generator_for(seed, f"posterior of {parts[0].info.question}")


def posterior_metrics(
    bits: Tensor, parts: Sequence[AttackAnswers], error: float, possible: Tensor | None, matches: Matches | None
) -> dict[str, Tensor]:
    """Bits ``(P,)``, what bounds them, the matches that test a declared epsilon, and the calibration error."""
    capacity = torch.cat([part.context.capacity for part in parts])
    epsilon = torch.cat([part.context.epsilon for part in parts])
    metrics = {"bits": bits, **bounds(bits, capacity), "calibration-error": torch.full_like(bits, error)}
    # Where no channel bounds the bits, the number of possible answers does.
    if "bits-bound" not in metrics and possible is not None:
        metrics["bits-possible"] = possible
    if matches is not None and bool(epsilon.isfinite().all()) and bool(matches.right.isfinite().any()):
        metrics["matched-clients"] = matches.right
        metrics["matched-clients-bound"] = matches.bound(epsilon)
    return metrics


def only_metrics(part: AttackAnswers, label: str, metrics: dict[str, Tensor]) -> Evaluation:
    """Metrics as results of an attack under a label."""
    scores = Scores(metrics, settings=part.settings)
    return tabulated(label, scores, part.context, info=part.info, seconds=part.seconds)


def with_extra_metrics(part: AttackAnswers, label: str, scores: Scores, extra: dict[str, Tensor]) -> Evaluation:
    """Scores of an attack with its prior under a label, with further metrics."""
    # The priors together are no attack that ran.
    if part.info.role == "baseline":
        info = dataclasses.replace(part.info, name="", variant=None, with_prior=True)
    else:
        knows = f"{part.info.knows}; the priors of the question, with weights learned from other people's answers"
        info = dataclasses.replace(part.info, role="ours", knows=knows, with_prior=True)
    scores = dataclasses.replace(scores, metrics={**scores.metrics, **extra}, details=())
    return tabulated(label, scores, part.context, info=info, seconds=part.seconds)
