"""Words of a client from the rows of the embedding table that moved."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from fedleak.attacks.re_identification.messages import whole_table
from fedleak.attacks.words.estimates import WordSetEstimate
from fedleak.attacks.words.frequencies import expected_words
from fedleak.attacks.words.next_words import next_words_among
from fedleak.core.attack import Attack
from fedleak.core.errors import ViewError
from fedleak.core.scoring import best_decisions
from fedleak.core.threat_model import ThreatModel
from fedleak.core.view import RoundView

_LATE = 1e-6
"""Score of a word that is only a next word, relative to the largest."""
_ROUNDING = 4 * torch.finfo(torch.float32).eps
"""Error of a change of a number by float32 training, relative to the number."""
_RATIOS = (-5.0, 6.0, 34)
"""Variances of a touched row's change over that of the noise: powers of ten of the least and the largest, number."""
_WINDOW = 10
"""Neighbouring ones, three powers of ten, among which those of one client's rows are equally likely."""
_SHARES = 12
"""Shares of touched rows that are tried where nothing is known of the words."""
_PARALLEL = 0.99
"""Cosine of a row's change and the row above which the change may be weight decay alone."""
_DECAY_ROUNDING = 0.02
"""Part of the estimated decay by which a row may differ from it and count as unmoved."""


@dataclass(frozen=True, kw_only=True)
class TouchedRows(Attack):
    """Words whose rows of the embedding table moved, and those that the last layer saw as a next word.

    The gradient of a row is zero unless a text has its word, so any number of steps of SGD or Adam moves exactly the
    rows of the client's words. Weight decay moves every other row by the same multiple of itself, which is removed. The
    last word of a text is predicted but predicts nothing: where the model has an output for each word, a word is found
    too if it is a next word (`NextWords`).

    Where clients add noise of standard deviation s, the energy of a row of D numbers is ``s^2`` times a chi-squared
    variable if its word is absent, and ``s^2 + t^2`` times one if it is present. On a logarithmic scale, any t in three
    powers of ten is equally likely, since frequent words move far more than rare ones; which three is decided by the
    likelihood. The prior probability of a word is that of `PopularWords` where there are auxiliary texts; otherwise all
    are equal, and the share of touched rows is that of largest likelihood. The words of largest posterior are called
    present, as many as give the largest expected F1.

    Threat model: passive server, one round; knows which table is the embedding. It needs no learner.

    Args:
        table: name of the embedding table; None for the only one, or the largest ``*embed*.weight``.

    References:
        This project. That such rows reveal words is noted by [Melis19], section 4.1.

    Example:
        >>> import torch
        >>> from fedleak.attacks.words import TouchedRows
        >>> from fedleak.attacks.words.toy import toy
        >>> view, truth = toy()
        >>> estimate = TouchedRows()(view, generator=torch.Generator().manual_seed(0))
        >>> round(float(estimate.score(view, truth).metrics["f1"].mean()), 2)
        1.0
    """

    name = "touched-rows"
    with_prior = "rank"
    family = "words"
    exact = True
    estimates = WordSetEstimate
    threat_model = ThreatModel(
        sees="the update of the embedding table and, where recorded, of the last layer",
        knows="which table is the embedding; uses word frequencies in texts of its own if it has any",
        needs=("deltas", "model"),
    )

    table: str | None = None

    def run(self, view: RoundView, *, generator: torch.Generator) -> WordSetEstimate:
        name = embedding_table(view, self.table)
        noise = view.noise_scale(name)
        change = whole_table(view, name).double()
        if noise and name not in view.row_parameters:  # noise on listed rows alone hides no word
            posterior, ratios = _posterior(change, noise, expected_words(view, change.shape[1]))
            decisions, expected = best_decisions(posterior)
            return WordSetEstimate(scores=posterior, decisions=decisions, expected=expected, evidence=ratios)
        moved = _moved(change, view.model[name].double())
        scores = moved.norm(dim=2)
        decisions = scores > 0
        # The last word of a text moves no row of the table, but it is a next word.
        last_words = next_words_among(view, ~decisions)
        if last_words is not None:
            scores = scores + last_words * scores.amax(1, keepdim=True) * _LATE
            decisions |= last_words
        decisions[:, 0] = False
        return WordSetEstimate(
            scores=scores, decisions=decisions, expected=torch.ones(view.victims, dtype=torch.float64)
        )


def embedding_table(view: RoundView, name: str | None = None) -> str:
    """Name of the embedding table of words.

    Raises:
        ViewError: there is none.
    """
    parameters = [parameter for parameter in view.deltas if parameter in view.model]  # clients may send other numbers
    tables = []
    for parameter in parameters:
        is_of_words = "embed" in parameter and "item" not in parameter
        if is_of_words and view.model[parameter].dim() == 2:
            tables.append(parameter)
    table = name or max(tables, key=lambda parameter: view.model[parameter].numel(), default="")
    if table not in view.deltas:
        raise ViewError(f"expected the deltas of an embedding table, got those of {', '.join(view.deltas)}")
    return table


def _moved(change: Tensor, table: Tensor) -> Tensor:
    """The change ``(V, W, D)`` without weight decay of the table, zero where only decay or rounding moved a row."""
    row_norm = table.norm(dim=1).clamp(min=1e-30)
    along = (change * table).sum(2) / row_norm
    change_norm = change.norm(dim=2)
    # Decay alone moves a row by a multiple of itself, the same for all: the median over the rows that move so.
    parallel = (along.abs() > _PARALLEL * change_norm) & (change_norm > 0)
    multiples = (along / row_norm).masked_fill(~parallel, torch.nan)
    decay = multiples.nanmedian(1).values.nan_to_num(0)
    # Decay moves all rows that no word touches; a few parallel rows among many others are no decay.
    decay = decay * (parallel.sum(1) > 0.5 * (change_norm > 0).sum(1))
    without_decay = change - decay[:, None, None] * table
    # Where there was decay, what is not larger than rounding did not move; without decay, such rows are exactly zero.
    rounding = _ROUNDING * row_norm + _DECAY_ROUNDING * decay.abs()[:, None] * row_norm
    still = (without_decay.norm(dim=2) <= rounding) & (decay != 0)[:, None]
    moved: Tensor = without_decay.masked_fill(still[..., None], 0)
    return moved


def _posterior(change: Tensor, noise: float, prior_of_words: Tensor | None) -> tuple[Tensor, Tensor]:
    """Probability that a row was touched, see `TouchedRows`, from a noisy change ``(V, W, D)``; and what it says alone.

    Both are ``(V, W)``; the latter is the logarithm of the likelihood ratio.
    ``prior_of_words (V, W)`` is the prior probability of each word; None for equal ones, of largest likelihood.
    """
    energy = change.square().sum(2) / noise**2
    width = change.shape[2]
    # With r = t^2 / s^2, the log likelihood ratio of a touched row is E / 2 r / (1 + r) - D / 2 log(1 + r).
    variance_ratios = torch.logspace(*_RATIOS, dtype=torch.float64)
    log_ratios = []
    for r in variance_ratios:
        log_ratios.append(energy / 2 * (r / (1 + r)) - width / 2 * r.log1p())
    ratios_by_variance = torch.stack(log_ratios)
    if prior_of_words is None:
        # From one touched row to half of them.
        one_row = -math.log10(energy.shape[1])
        shares = torch.logspace(one_row, math.log10(0.5), _SHARES, dtype=torch.float64)
        priors = [share.expand(1, 1) for share in shares]
    else:
        priors = [prior_of_words.clamp(1e-9, 1 - 1e-9)]
    largest_likelihood = torch.full((len(energy), 1), -torch.inf, dtype=torch.float64)
    probability = torch.zeros_like(energy)
    evidence = torch.zeros_like(energy)
    # Each client has the window of variances, and the share of touched rows, of its largest likelihood.
    for first in range(len(variance_ratios) - _WINDOW + 1):
        # All variances of a window are equally likely: the mean of their likelihood ratios.
        log_ratio = ratios_by_variance[first : first + _WINDOW].logsumexp(0) - math.log(_WINDOW)
        for prior in priors:
            log_odds = log_ratio + prior.logit()
            # Logarithm of the product over words of (1 - p) + p L, as (1 - p) (1 + odds).
            likelihood = (functional.softplus(log_odds) + (-prior).log1p()).sum(1, keepdim=True)
            is_larger = likelihood > largest_likelihood
            probability = torch.where(is_larger, log_odds.sigmoid(), probability)
            evidence = torch.where(is_larger, log_ratio, evidence)
            largest_likelihood = torch.maximum(likelihood, largest_likelihood)
    # Word 0 is padding.
    probability[:, 0] = 0
    evidence[:, 0] = 0
    return probability, evidence
