"""Bits of attacks on questions with a finite number of answers, and their results with the priors."""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from fedleak.core.answers import Choices
from fedleak.core.estimates import Scores
from fedleak.evaluation.evaluation import Evaluation
from fedleak.evaluation.labels import combined_label, prior_label
from fedleak.evaluation.posterior.answer_rows import AnswerRows
from fedleak.evaluation.posterior.log_odds import Evidence
from fedleak.evaluation.posterior.posterior_metrics import (
    Answers,
    only_metrics,
    posterior_metrics,
    source_of_groups,
    with_extra_metrics,
)
from fedleak.evaluation.result_names import ANSWERS, PROBABILITY, TRUE
from fedleak.evaluation.scores import from_records

_BINS = 15
"""Bins of equal width of the probabilities whose calibration is measured."""
_LEAST = 1e-6
"""Distance from 0 and 1 to which posterior probabilities are cut before their log odds are taken."""


def evaluate_choices(answers: Answers, seed: int, shuffled: bool) -> Iterator[Evaluation]:
    """Results of the attacks on one question with a finite number of answers: bits, and scores with the priors."""
    rows = {}
    for label, parts in answers.items():
        of_attack = AnswerRows.of(parts)
        if shuffled and parts[0].attack.is_prior:
            of_attack = of_attack.shuffled(seed, label)
        if of_attack.enough():
            rows[label] = of_attack
    priors = [of_attack for of_attack in rows.values() if of_attack.attack.is_prior]
    # Log odds by the priors alone, once for all attacks on the same questions.
    prior_odds: list[tuple[AnswerRows, Tensor]] = []
    for label, of_attack in rows.items():
        attack = of_attack.attack
        if attack.baseline:
            continue
        # Log odds by the evidence and the priors together.
        evidence = [*_evidence(of_attack), *_columns(priors, of_attack)]
        odds = of_attack.odds(evidence, source_of_groups(of_attack.parts, seed))
        odds_without = _prior_log_odds(priors, of_attack, prior_odds, seed)
        # The bits of an update are what is unknown before it, minus what is unknown after it.
        unknown_after = -of_attack.log_probability(odds)
        unknown_before = -of_attack.log_probability(odds_without)
        bins = _reliability(of_attack, odds)
        metrics = posterior_metrics(
            bits=unknown_before - unknown_after,
            parts=of_attack.parts,
            error=_calibration_error(bins),
            possible=of_attack.possible(),
            matches=of_attack.matches(odds, priors),
        )
        metrics["bits-left"] = unknown_after
        # By the chain rule, the bits beyond those of the counts.
        after_counts = of_attack.given_counts(odds)
        before_counts = of_attack.given_counts(odds_without)
        if after_counts is not None and before_counts is not None:
            metrics["bits-beyond-counts"] = after_counts - before_counts
        yield from _rescored(of_attack, metrics, label)
        has_prior = any(of_attack.aligned(prior) is not None for prior in priors)
        if attack.with_prior in ("likelihood", "rank") and has_prior:
            yield from _rescored(of_attack, metrics, combined_label(label), odds)
            yield Evaluation(details={combined_label(label): from_records(bins)})
        elif attack.with_prior is not None:
            yield Evaluation(details={label: from_records(bins)})
    if priors and any(of_attack.attack.with_prior for of_attack in rows.values()):
        yield from _priors_together(priors, prior_odds, seed)


def _evidence(rows: AnswerRows) -> list[Evidence]:
    """What an attack says: its scores, as log odds where it gives probabilities, and what it decided itself."""
    with_prior = rows.attack.with_prior
    scores = rows.scores.logit(_LEAST) if with_prior == "posterior" else rows.scores
    evidence = [Evidence(scores, linear=with_prior in ("likelihood", "posterior"))]
    if bool(rows.decided.any()):
        evidence.append(Evidence(rows.decided.double(), linear=True))
    return evidence


def _priors_together(
    priors: Sequence[AnswerRows], prior_odds: list[tuple[AnswerRows, Tensor]], seed: int
) -> Iterator[Evaluation]:
    """Results of all priors of a question together, without any attack."""
    first = priors[0]
    odds = _prior_log_odds(priors, first, prior_odds, seed)
    unknown = -first.log_probability(odds)
    error = _calibration_error(_reliability(first, odds))
    metrics = {"bits-left": unknown, "calibration-error": torch.full_like(unknown, error)}
    yield from _rescored(first, metrics, prior_label(first.parts[0].info.family), odds)


def _columns(priors: Sequence[AnswerRows], rows: AnswerRows) -> list[Evidence]:
    """What the priors say of the questions of an attack, with the number of questions about the same."""
    columns = []
    for prior in priors:
        scores = rows.aligned(prior)
        if scores is not None:
            columns.append(Evidence(scores))
    count = rows.numbers()
    if count is not None:
        columns.append(Evidence(count))
    return columns


def _prior_log_odds(
    priors: Sequence[AnswerRows], rows: AnswerRows, prior_odds: list[tuple[AnswerRows, Tensor]], seed: int
) -> Tensor:
    """``(N,)`` log odds by the priors alone: one of the given ones, or new ones, which are added to them."""
    for same_rows, odds in prior_odds:
        if rows.asks_same(same_rows):
            return odds
    odds = rows.odds(_columns(priors, rows), source_of_groups(rows.parts, seed))
    prior_odds.append((rows, odds))
    return odds


def _rescored(
    rows: AnswerRows, extra: dict[str, Tensor], label: str, odds: Tensor | None = None
) -> Iterator[Evaluation]:
    """Results of each view under a label: of the estimate with these log odds, or further metrics alone."""
    first_row = 0
    first_value = 0
    for part in rows.parts:
        answers = part.answers
        assert isinstance(answers, Choices)
        end_row = first_row + len(answers.labels)
        end_value = first_value + len(part.context.victims)
        metrics_of_view = {name: values[first_value:end_value] for name, values in extra.items()}
        if odds is None:
            yield only_metrics(part, label, metrics_of_view)
        else:
            scores: Scores = answers.rescored(odds[first_row:end_row])
            yield with_extra_metrics(part, label, scores, metrics_of_view)
        first_row, first_value = end_row, end_value


def _reliability(rows: AnswerRows, odds: Tensor) -> list[dict[str, float]]:
    """Mean probability, share of true answers and number of answers in each bin of equal width that has some."""
    chance = rows.probabilities(odds)[rows.labelled]
    labels = rows.labels[rows.labelled].double()
    bin_number = (chance * _BINS).long().clamp(max=_BINS - 1)
    counts = bin_number.bincount(minlength=_BINS)
    chance_sums = torch.zeros(_BINS, dtype=torch.float64).index_add_(0, bin_number, chance)
    label_sums = torch.zeros(_BINS, dtype=torch.float64).index_add_(0, bin_number, labels)
    mean_chances = chance_sums / counts.clamp(min=1)
    shares_true = label_sums / counts.clamp(min=1)
    bins: list[dict[str, float]] = []
    for number in counts.nonzero().flatten().tolist():
        bins.append(
            {
                PROBABILITY: float(mean_chances[number]),
                TRUE: float(shares_true[number]),
                ANSWERS: int(counts[number]),
            }
        )
    return bins


def _calibration_error(bins: Sequence[dict[str, float]]) -> float:
    """Mean distance of predicted and observed shares, weighted by answers.

    References:
        [Naeini15].
    """
    # sum_b n_b |mean probability - share of true answers| / sum_b n_b
    distance = sum(of_bin[ANSWERS] * abs(of_bin[PROBABILITY] - of_bin[TRUE]) for of_bin in bins)
    return distance / sum(of_bin[ANSWERS] for of_bin in bins)
