"""How often each word is the next one in a client's texts, from the last layer of a language model."""

from dataclasses import dataclass

import torch
from torch import Tensor

from fedleak.attacks.words.estimates import WordCountEstimate
from fedleak.attacks.words.frequencies import TEXTS, word_frequencies
from fedleak.client.algorithm import ExampleAlgorithm
from fedleak.client.last_layer import last_layer
from fedleak.core.attack import Attack
from fedleak.core.errors import ViewError
from fedleak.core.threat_model import ThreatModel
from fedleak.core.view import RoundView

_PASSES = 3
"""How often the mean hidden state and the mean prediction are computed from each other."""
_ABSENT = 0.75
"""Quantile of the words, by how much their bias fell, that is taken for one of an absent word."""
_ONCE = 1.6
"""Ratio of a share to the smallest up to which it is taken for that of one word."""
_BURSTINESS = 3.0
"""Variance of a word's count over that of independent words, as in `WordCounts`."""
_OUTLIER, _LEAST_GAP = 12.0, 1e-3
"""Median deviations by which a word that is present fell less than absent ones, and least relative difference."""
_LEAST_FACTOR = 1e-3
"""Smallest step size under noise and a clip."""
_ONE_STEP = 0.02
"""Relative spread of the shares of words that occur once, up to which the client has made one step."""
_RARE = 4.5
"""Occurrences up to which a word's share says how many words there are: those of more have the larger errors."""
_TRIED = (0.8, 1.2, 401)
"""Numbers of words that are tried, over the first estimate: least, largest, how many."""
_USUAL_LENGTH = 10.0
"""Next words of a text where the server has no texts."""


@dataclass(frozen=True, kw_only=True)
class NextWords(Attack):
    """Next-word counts, as the numbers behind the change of the last bias.

    A step of size s on the mean cross-entropy of N predicted words changes the bias of word w by ``s (n_w / N - p_w)``.
    The mean prediction p is the softmax of the last layer at the mean hidden state, which is the sum of the weight's
    changes over that of the bias's over the words that fell, most of which do not occur. The step size, if it is
    unknown, is that which makes such words absent. N is the number that makes the smallest shares one word each, and
    then those of rare words nearest to whole numbers. Exact for one step; for several, each mini-batch has the same
    weight, whatever its number of words, and p is that of the model half way.

    Where clients add noise, a count is the posterior mean, with a normal prior about the word's frequency in auxiliary
    texts (or about p), of three times the variance of independent words.

    Threat model: passive server, one round; knows which layer is the last. Uses the learning rate if it knows it.

    References:
        This project; the identity is that of label counts, see `fedleak.attacks.composition.output_counts`.

    Example:
        >>> import torch
        >>> from fedleak.attacks.words import NextWords
        >>> from fedleak.attacks.words.toy import toy
        >>> view, truth = toy()
        >>> estimate = NextWords()(view, generator=torch.Generator().manual_seed(0))
        >>> round(float(estimate.score(view, truth).metrics["exact-words"].mean()), 2)
        1.0
    """

    name = "next-words"
    family = "words"
    estimates = WordCountEstimate
    threat_model = ThreatModel(
        sees="the update of the last layer of a language model and how many texts the client reports",
        knows="the word of each row; uses the learning rate, and texts of its own, if it has any",
        needs=("deltas", "model"),
    )

    def run(self, view: RoundView, *, generator: torch.Generator) -> WordCountEstimate:
        layer = word_layer(view)
        share, predicted, scale = _shares(view, layer)
        noise = view.noise_scale(f"{layer}.bias")
        if not noise:
            total, least_share, spread = _number_of_words(share)
            counts = (share * total).where(share > least_share, 0.0)
            # A word that is present occurs once at least.
            counts = torch.where((counts > 0) & (counts < 1), 1.0, counts)
            # After one step counts are whole, so their mean squared distance from whole numbers is their error. After
            # several, the words of a mini-batch weigh by its size: independent factors of the measured spread.
            present = (counts > 0).sum(1, keepdim=True).clamp(1)
            squared_error = (counts - counts.round()).square().sum(1, keepdim=True) / present
            squared_error = squared_error.where(spread < _ONE_STEP, 0.0)
            deviation = (squared_error + spread.square() * counts).sqrt()
        else:
            prior = _expected(view, predicted)
            total = view.example_counts[:, None].double() * words_per_text(view)
            # Normal prior about the expected share, normal noise: the posterior mean is between prior and measurement.
            prior_variance = _BURSTINESS * prior / total
            weight = prior_variance / (prior_variance + (noise / scale) ** 2)
            counts = (prior + weight * (share - prior)).clamp(min=0) * total
            deviation = total * (prior_variance * (1 - weight)).sqrt()
        counts[:, 0] = 0  # padding
        return WordCountEstimate(counts=counts, deviation=deviation)


def next_words_among(view: RoundView, words: Tensor) -> Tensor | None:
    """``(V, W)`` which of the words ``words (V, W)``, most of them absent, are next words; None without a clean output.

    The bias of an absent word falls by the step size times its mean prediction; the median of that ratio over the words
    and its absolute deviation show how exactly the prediction is known. A word is present if it fell by less.
    """
    try:
        layer = word_layer(view)
    except ViewError:
        return None
    if len(view.model[f"{layer}.bias"]) != words.shape[1] or view.noise_scale(f"{layer}.bias"):
        return None
    _, predicted, scale = _shares(view, layer)
    # Of an absent word, the fall is s p_w, so that this ratio is 1 but for the error of p_w.
    fall = -view.deltas[f"{layer}.bias"].double()
    ratio = (fall / (scale * predicted)).masked_fill(~words, torch.nan)
    middle = ratio.nanmedian(1, keepdim=True).values
    spread = (ratio - middle).abs().nanmedian(1, keepdim=True).values
    return ratio < middle - (_OUTLIER * spread).clamp(min=_LEAST_GAP)


def next_word_shares(view: RoundView, absent: Tensor) -> Tensor:
    """``(V, W)`` share of each word among the next ones, with an error where it is absent.

    ``absent (V, W)`` are words that are known not to occur: of many texts, others fall too, as they are rarer than
    predicted.

    Raises:
        ViewError: the recording does not hold the last layer of a language model.
    """
    return _shares(view, word_layer(view), absent)[0]


def word_layer(view: RoundView) -> str:
    """Name of the last layer of a language model.

    Raises:
        ViewError: the recording does not hold one with an output for each row of an embedding table.
    """
    layer = last_layer(view)
    vocabularies = set()
    for name, parameter in view.model.items():
        if "embed" in name and parameter.dim() == 2:
            vocabularies.add(len(parameter))
    if len(view.model[f"{layer}.bias"]) not in vocabularies:
        raise ViewError(f"expected a last layer with an output for each word of an embedding, got {layer} without one")
    return layer


def words_per_text(view: RoundView) -> float:
    """Mean number of next words of the auxiliary texts; 10 without any."""
    texts = view.auxiliary.get(TEXTS)
    if texts is None or texts.dim() != 2:
        return _USUAL_LENGTH
    # Every word but the first of a text is a next word; 0 is padding.
    mean_length = float((texts[:, 1:] > 0).sum(1).double().mean())
    return max(mean_length, 1.0)


def _shares(view: RoundView, layer: str, absent: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """Share ``(V, W)`` of each word among the next ones, mean prediction ``(V, W)`` and step size ``(V, 1)``."""
    bias_change = view.deltas[f"{layer}.bias"].double()
    weight = view.model[f"{layer}.weight"].double()
    sent_bias = view.model[f"{layer}.bias"].double()
    noisy = bool(view.noise_scale(f"{layer}.bias"))
    weight_change = view.deltas.get(f"{layer}.weight")
    # The bias half way between the sent and the client's model; under noise the client's says too little.
    bias = sent_bias.expand_as(bias_change) if noisy else sent_bias + bias_change / 2
    predicted = bias.softmax(1)
    scale = _step_size(view, layer, predicted)
    # From b' - b = s (n / N - p) follow the shares n / N = (b' - b) / s + p.
    if weight_change is None or noisy:
        return bias_change / scale + predicted, predicted, scale
    for number in range(_PASSES):
        # Words that are taken for absent: all that fell at first, then those whose share is too small for a word.
        fallen = bias_change < 0
        if absent is not None:
            fallen = fallen & absent
        elif number:
            share = bias_change / scale + predicted
            fallen = fallen & (share < _number_of_words(share)[1])
        # Rows of absent words change by -s p_w times the mean hidden state, their biases by -s p_w.
        summed_rows = (fallen.float()[:, None] @ weight_change).squeeze(1).double()
        summed_biases = (bias_change * fallen).sum(1, keepdim=True).clamp(max=-1e-30)
        state = summed_rows / summed_biases
        # The mean prediction is that of the layer half way, at this state.
        half_moved = (weight_change.float() @ state.float()[..., None]).squeeze(2).double() / 2
        predicted = (bias + state @ weight.T + half_moved).softmax(1)
        scale = _step_size(view, layer, predicted)
    # The prediction at the mean state is not quite the mean prediction: absent words show by which factor it is off.
    ratio = (-bias_change / (scale * predicted)).masked_fill(~fallen, torch.nan)
    predicted = predicted * ratio.nanmedian(1, keepdim=True).values.nan_to_num(1)
    return bias_change / scale + predicted, predicted, scale


def _step_size(view: RoundView, layer: str, predicted: Tensor) -> Tensor:
    """``(V, 1)`` learning rate times number of steps, times the factor of the clip.

    Without a learner, or with a clip, it is that of an absent word; where clients add noise and clip, the coefficient
    of least squares of the bias's change on the change expected of everybody's texts.
    """
    learner = view.algorithm
    bias_change = view.deltas[f"{layer}.bias"].double()
    # A clip only makes steps smaller, so the rate of a known learner is a bound; without a learner there is none.
    rate = torch.full((view.victims, 1), torch.inf, dtype=torch.float64)
    if isinstance(learner, ExampleAlgorithm):
        rate = (learner.learning_rate * learner.steps(view.example_counts)).double()[:, None]
        if view.clip(f"{layer}.bias") is None and learner.local.max_grad_norm is None:
            return rate
    if view.noise_scale(f"{layer}.bias"):
        expected_change = _expected(view, predicted) - predicted
        squares = expected_change.square().sum(1, keepdim=True).clamp(min=1e-30)
        fitted = (bias_change * expected_change).sum(1, keepdim=True) / squares
        return torch.minimum(fitted.clamp(min=_LEAST_FACTOR), rate)
    # An absent word falls by s p_w.
    of_absent = (-bias_change / predicted).quantile(_ABSENT, dim=1, keepdim=True)
    return torch.minimum(of_absent.clamp(min=1e-30), rate)


def _expected(view: RoundView, predicted: Tensor) -> Tensor:
    """``(V, W)`` frequency of each word in auxiliary texts, or the mean prediction without any."""
    frequency = word_frequencies(view, predicted.shape[1])
    if frequency is None:
        return predicted
    return (frequency / frequency.sum()).expand_as(predicted)


def _number_of_words(share: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Number N ``(V, 1)`` of next words that makes the smallest of ``share (V, W)`` one word each.

    The second and third result ``(V, 1)`` are the share from which on a word is called present, and the relative spread
    of the shares of words that occur once. Shares of absent words are only errors, so the largest ratio of neighbours
    in the ordered shares parts them from the others. N is the inverse of the median of the lowest of these and, if they
    are as alike as after one step, within a fifth of that the number that puts the shares of rare words nearest to
    whole numbers.
    """
    # The gap between errors and words, as the largest ratio of neighbours; in the lowest tenth ratios are large by
    # chance, as errors come arbitrarily near to zero. The threshold is the geometric mean of both sides.
    ordered = share.abs().clamp(min=1e-12).sort(dim=1).values
    lowest = ordered.shape[1] // 10
    gap = ordered[:, lowest:].log().diff(dim=1).argmax(1, keepdim=True) + lowest
    least_share = (ordered.gather(1, gap) * ordered.gather(1, gap + 1)).sqrt()
    present = share.masked_fill(share < least_share, torch.nan)
    # Words that occur once have the smallest shares; their median is 1 / N.
    smallest = present.nan_to_num(torch.inf).amin(1, keepdim=True)
    once = present.masked_fill(present > _ONCE * smallest, torch.nan)
    share_of_one = once.nanmedian(1, keepdim=True).values
    first_total = (1 / share_of_one).nan_to_num(1.0)
    squared_spread = (once / share_of_one - 1).square().nanmean(1, keepdim=True)
    spread = squared_spread.sqrt().nan_to_num(0)
    # After one step all counts are whole: of the numbers about the first, that with the nearest counts.
    totals = first_total * torch.linspace(*_TRIED, dtype=torch.float64)
    rare = present.masked_fill(present > _RARE * share_of_one, torch.nan)
    squared_distances = []
    for total in totals.T:
        counts = rare * total[:, None]
        squared_distances.append((counts - counts.round()).square().nansum(1))
    nearest = totals.gather(1, torch.stack(squared_distances, 1).argmin(1, keepdim=True))
    return torch.where(spread < _ONE_STEP, nearest, first_total), least_share, spread
