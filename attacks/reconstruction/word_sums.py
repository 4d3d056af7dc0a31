"""How often each word is predicted, and the sum of the states before it, from the change of the last layer."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional


@dataclass(frozen=True)
class WordSums:
    """Words that a client's model had to predict.

    Attributes:
        counts: ``(W,)`` int64 times that each word is the next one.
        sums: ``(W, D)`` float64 sum of the inputs of the last layer before each word.
        error: standard deviation of the length of the error of a sum.
    """

    counts: Tensor
    sums: Tensor
    error: float


def word_sums(change: Tensor, last: Tensor, rate: float) -> WordSums:
    """Separates the states before each word from the predictions, by regression on the words that do not occur.

    A step of rate r changes the row of word w by ``r / T (sum_{t: next = w} z_t - sum_t q_tw z_t)`` for the T predicted
    words with inputs z_t of the last layer and predicted probabilities q_tw. Most words of the vocabulary do not occur.
    Their rows give the second sum: divided by the mean probability, it is nearly linear in the weights of the word. The
    column of the bias, for which z_t is 1, gives T and the counts, which are whole numbers.

    Args:
        change: ``(W, D + 1)`` change of the last layer, the bias as last column.
        last: ``(W, D + 1)`` weights and bias of the last layer.
        rate: learning rate of the step.
    """
    change = change.double() / rate
    bias = last[:, -1].double()
    weights = functional.pad(last[:, :-1].double(), (0, 1), value=1.0)
    nothing = WordSums(torch.zeros(len(last), dtype=torch.int64), change[:, :-1], float("inf"))
    # The bias of a word that does not occur falls by its mean probability, the logarithm of which is about linear in
    # its weights: log q_w = b_w + w.z for a mean input z, with the normalisation as a constant.
    lost = -change[:, -1]
    falls = lost > 0
    if int(falls.sum()) <= weights.shape[1]:
        return nothing
    log_ratio = lost[falls].log()[:, None] - bias[falls, None]
    mean_input = torch.linalg.lstsq(weights[falls], log_ratio).solution[:, 0]
    predicted = (bias + weights @ mean_input).exp()
    # What the bias gains beyond it is n_w / T. The smallest gains are 1 / T, of words that occur once: those below a
    # fifth of the median are error, and those up to 1.4 times the smallest are no 2 / T.
    shares = change[:, -1] + predicted
    gains = shares[~falls & (shares > 0)]
    total = 0
    if len(gains):
        smallest = gains[gains > gains.median() / 5].min()
        total = round(float(1 / gains[gains < 1.4 * smallest].median()))
    total = int((shares * total).round().clamp(min=0).sum())  # the whole number that the counts add up to
    counts = (shares * total).round().clamp(min=0).long()
    absent = counts == 0
    if int(absent.sum()) <= weights.shape[1]:
        return nothing
    # Rows of absent words give sum_t q_tw z_t, over the mean probability linear in the word's weights; what a row has
    # besides is the sum of the states before the word.
    predictions = total * change[:, :-1] / predicted[:, None]
    slopes = torch.linalg.lstsq(weights[absent], predictions[absent]).solution
    sums = predicted[:, None] * (predictions - weights @ slopes)
    error = float(sums[absent].square().sum(1).mean().sqrt())
    return WordSums(counts, sums * (counts > 0)[:, None], error)
