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
            total, least, spread = _number_of_words(share)
            counts = (share * total).where(share > least, 0.0)
            counts = torch.where((counts > 0) & (counts < 1), 1.0, counts)
            off = (counts - counts.round()).square().sum(1, keepdim=True) / (counts > 0).sum(1, keepdim=True).clamp(1)
            off = off.where(spread < _ONE_STEP, 0.0)
            deviation = (off + spread.square() * counts).sqrt()
        else:
            prior = _expected(view, predicted)
            total = view.example_counts[:, None].double() * words_per_text(view)
            own = _BURSTINESS * prior / total
            kept = own / (own + (noise / scale) ** 2)
            counts = (prior + kept * (share - prior)).clamp(min=0) * total
            deviation = total * (own * (1 - kept)).sqrt()
        counts[:, 0] = 0
        return WordCountEstimate(counts=counts, deviation=deviation)


def next_words_among(view: RoundView, asked: Tensor) -> Tensor | None:
    """``(V, W)`` which of the words ``asked (V, W)``, most of them absent, are next words; None without a clean output.

    The bias of an absent word falls by the step size times its mean prediction; the median of that ratio over the words
    and its absolute deviation show how exactly the prediction is known. A word is present if it fell by less.
    """
    try:
        layer = word_layer(view)
    except ViewError:
        return None
    if len(view.model[f"{layer}.bias"]) != asked.shape[1] or view.noise_scale(f"{layer}.bias"):
        return None
    _, predicted, scale = _shares(view, layer)
    ratio = (-view.deltas[f"{layer}.bias"].double() / (scale * predicted)).masked_fill(~asked, torch.nan)
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
    heights = {len(value) for name, value in view.model.items() if "embed" in name and value.dim() == 2}
    if len(view.model[f"{layer}.bias"]) not in heights:
        raise ViewError(f"expected a last layer with an output for each word of an embedding, got {layer} without one")
    return layer


def words_per_text(view: RoundView) -> float:
    """Mean number of next words of the auxiliary texts; 10 without any."""
    texts = view.auxiliary.get(TEXTS)
    return 10.0 if texts is None or texts.dim() != 2 else max(float((texts[:, 1:] > 0).sum(1).double().mean()), 1.0)


def _shares(view: RoundView, layer: str, absent: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """Share ``(V, W)`` of each word among the next ones, mean prediction ``(V, W)`` and step size ``(V, 1)``."""
    bias = view.deltas[f"{layer}.bias"].double()
    table, start = view.model[f"{layer}.weight"].double(), view.model[f"{layer}.bias"].double()
    noisy = bool(view.noise_scale(f"{layer}.bias"))
    change = view.deltas.get(f"{layer}.weight")
    middle = start.expand_as(bias) if noisy else start + bias / 2
    predicted = middle.softmax(1)
    scale = _step_size(view, layer, predicted)
    if change is None or noisy:
        return bias / scale + predicted, predicted, scale
    for number in range(_PASSES):
        share = bias / scale + predicted
        fallen = (bias < 0) & ((share < _number_of_words(share)[1]) if number else True)
        fallen = fallen if absent is None else (bias < 0) & absent
        weight = fallen.float()[:, None]
        state = (weight @ change).squeeze(1).double() / (bias * fallen).sum(1, keepdim=True).clamp(max=-1e-30)
        moved = (change.float() @ state.float()[..., None]).squeeze(2).double() / 2
        predicted = (middle + state @ table.T + moved).softmax(1)
        scale = _step_size(view, layer, predicted)
    ratio = (-bias / (scale * predicted)).masked_fill(~fallen, torch.nan)
    predicted = predicted * ratio.nanmedian(1, keepdim=True).values.nan_to_num(1)
    return bias / scale + predicted, predicted, scale


def _step_size(view: RoundView, layer: str, predicted: Tensor) -> Tensor:
    """``(V, 1)`` learning rate times number of steps, times the factor of the clip.

    Without a learner, or with a clip, it is that of an absent word; where clients add noise and clip, the coefficient
    of least squares of the bias's change on the change expected of everybody's texts.
    """
    learner, bias = view.algorithm, view.deltas[f"{layer}.bias"].double()
    known = isinstance(learner, ExampleAlgorithm)
    rate = torch.full((view.victims, 1), torch.inf, dtype=torch.float64)
    if isinstance(learner, ExampleAlgorithm):
        rate = (learner.learning_rate * learner.steps(view.example_counts)).double()[:, None]
    if known and view.clip(f"{layer}.bias") is None:
        return rate
    if view.noise_scale(f"{layer}.bias"):
        usual = _expected(view, predicted) - predicted
        found = (bias * usual).sum(1, keepdim=True) / usual.square().sum(1, keepdim=True).clamp(min=1e-30)
        return torch.minimum(found.clamp(min=_LEAST_FACTOR), rate)
    return torch.minimum((-bias / predicted).quantile(_ABSENT, dim=1, keepdim=True).clamp(min=1e-30), rate)


def _expected(view: RoundView, predicted: Tensor) -> Tensor:
    """``(V, W)`` frequency of each word in auxiliary texts, or the mean prediction without any."""
    frequency = word_frequencies(view, predicted.shape[1])
    return predicted if frequency is None else (frequency / frequency.sum()).expand_as(predicted)


def _number_of_words(share: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Number N ``(V, 1)`` of next words that makes the smallest of ``share (V, W)`` one word each.

    The second and third result ``(V, 1)`` are the share from which on a word is called present, and the relative spread
    of the shares of words that occur once. Shares of absent words are only errors, so the largest ratio of neighbours
    in the ordered shares parts them from the others. N is the inverse of the median of the lowest of these and, if they
    are as alike as after one step, within a fifth of that the number that puts the shares of rare words nearest to
    whole numbers.
    """
    ordered = share.abs().clamp(min=1e-12).sort(dim=1).values
    lowest = ordered.shape[1] // 10
    gap = ordered[:, lowest:].log().diff(dim=1).argmax(1, keepdim=True) + lowest
    least = (ordered.gather(1, gap) * ordered.gather(1, gap + 1)).sqrt()
    present = share.masked_fill(share < least, torch.nan)
    smallest = present.nan_to_num(torch.inf).amin(1, keepdim=True)
    once = present.masked_fill(present > _ONCE * smallest, torch.nan)
    one = once.nanmedian(1, keepdim=True).values
    first = (1 / one).nan_to_num(1.0)
    spread = ((once / one - 1).square().nanmean(1, keepdim=True)).sqrt().nan_to_num(0)
    tried = first * torch.linspace(0.8, 1.2, 401, dtype=torch.float64)
    rare = present.masked_fill(present > 4.5 * one, torch.nan)
    off = torch.stack([(rare * t[:, None] - (rare * t[:, None]).round()).square().nansum(1) for t in tried.T], 1)
    nearest = tried.gather(1, off.argmin(1, keepdim=True))
    return torch.where(spread < _ONE_STEP, nearest, first), least, spread
