"""Which words follow each prefix, and how often, from the change of a language model's last layer."""

from dataclasses import dataclass

import numpy as np
import torch
from scipy.optimize import nnls
from torch import Tensor

_PASSES = 3
"""The predicted probabilities weigh little against the words themselves, so that few corrections suffice."""
_NOT_PREDICTED = 0.1
"""Least share of the next words that is taken as not predicted: a quotient of less would be mostly its error."""
_SMALLEST = 4
"""An amount counts if it is above the change by one occurrence over this, as the rate is known to a factor only."""


@dataclass(frozen=True)
class FollowingWords:
    """Words that follow prefixes.

    Attributes:
        counts: ``(P, W)`` int64 times that each word follows each prefix.
        excess: root mean square of what they leave unexplained of the layer's change, in units of its noise.
    """

    counts: Tensor
    excess: float


def next_words(
    change: Tensor, states: Tensor, logits: Tensor, started: Tensor, noise: float, *, repeated: float = 1.0
) -> FollowingWords:
    """Non-negative least squares for the next words of known prefixes.

    A step of gradient descent on the cross-entropy changes the row of word w by ``r sum_p (n_pw - n_p q_pw) z_p``: with
    n_pw, the times that w follows prefix p; n_p, their sum; q_pw, the predicted probability; z_p, the input of the
    layer. The unknown n_pw are sparse, not negative, and multiples of one number r, so they are found even where the
    z_p are nearly dependent.

    The ``change (W, D)`` of the last layer has the bias as its last column and noise of a standard deviation; ``states
    (P, D)``, the inputs of the layer, have a 1 at the end; ``logits (P, W)`` are the predictions. Each prefix is
    followed by a word at least ``started (P,)`` times, and a sentence occurs `repeated` times on average.
    """
    predicted = logits.softmax(1)
    bias_change = change[:, -1]
    gains = bias_change > 0
    # Words that gain get the rate times (1 - p), where p is what the model predicts of them in all.
    shares = started.double() / started.sum()
    not_predicted = (1 - (shares @ predicted)[gains].sum()).clamp(min=_NOT_PREDICTED)
    rate = float(bias_change[gains].sum() / not_predicted)
    # The rate is that of all N next words together, one of them has rate / N: N is what is started, times repetitions.
    smallest = rate / float(started.sum()) / max(repeated, 1.0) / _SMALLEST
    prefix_weights = shares * rate  # r n_p
    basis, factor = torch.linalg.qr(states.T)
    triangle = factor.numpy()
    amounts = torch.zeros(len(states), len(change), dtype=torch.float64)  # r n_pw
    for _ in range(_PASSES):
        # Adding what the predictions took leaves r sum_p n_pw z_p in the row of word w.
        without_predictions = change + (prefix_weights[:, None] * predicted).T @ states
        words = (without_predictions[:, -1] > smallest).nonzero().flatten()
        amounts.zero_()
        targets = (without_predictions[words] @ basis).numpy()
        for word, target in zip(words.tolist(), targets, strict=True):  # no batched solver has sign constraints
            amounts[:, word] = torch.from_numpy(np.asarray(nnls(triangle, target, maxiter=30 * len(states))[0]))
        largest = amounts.amax(1)
        is_prefix = largest > smallest  # what is no prefix is followed by nothing
        if not bool(is_prefix.any()):
            return FollowingWords(torch.zeros_like(amounts, dtype=torch.int64), float("inf"))
        # Most prefixes are followed once by some word, so the median of their largest amounts is the rate of one.
        unit = float(largest[is_prefix].median())
        prefix_weights = (amounts / unit).round().sum(1) * unit
    counts = (amounts / unit).round().long()
    # The whole numbers explain the change up to its noise, with the rate of least squares.
    simulated = (counts - counts.sum(1, keepdim=True) * predicted).T @ states
    rate = float((simulated * change).sum() / simulated.square().sum().clamp(min=1e-300))
    unexplained = float((change - rate * simulated).square().mean().sqrt())
    return FollowingWords(counts, unexplained / max(noise, 1e-300))
