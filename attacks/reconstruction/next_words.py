"""Which words follow each prefix, and how often, from the change of a language model's last layer."""

from dataclasses import dataclass

import numpy as np
import torch
from scipy.optimize import nnls
from torch import Tensor

_PASSES = 3
"""The predicted probabilities weigh little against the words themselves, so that few corrections suffice."""


@dataclass(frozen=True)
class NextWords:
    """Words that follow prefixes.

    Attributes:
        counts: ``(P, W)`` int64 times that each word follows each prefix.
        excess: root mean square of what they leave unexplained of the layer's change, in units of its noise.
    """

    counts: Tensor
    excess: float


def next_words(
    change: Tensor, states: Tensor, logits: Tensor, started: Tensor, noise: float, *, repeated: float = 1.0
) -> NextWords:
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
    weights = started.double() / started.sum()
    # The rate r times all predicted words: what words gain in sum, and what they would gain without the predictions.
    bias = change[:, -1]
    gaining = bias > 0
    rate = float(bias[gaining].sum() / (1 - (weights @ predicted)[gaining].sum()).clamp(min=0.1))
    amounts = torch.zeros(len(states), len(change), dtype=torch.float64)
    least = rate / float(started.sum()) / max(repeated, 1.0) / 4
    weights = weights * rate
    basis, factor = torch.linalg.qr(states.T)
    triangle = factor.numpy()
    for _ in range(_PASSES):
        rows = change + (weights[:, None] * predicted).T @ states
        words = (rows[:, -1] > least).nonzero().flatten()
        amounts.zero_()
        wanted = rows[words] @ basis
        for word, row in zip(words.tolist(), wanted.numpy(), strict=True):  # no batched solver has sign constraints
            amounts[:, word] = torch.from_numpy(np.asarray(nnls(triangle, row, maxiter=30 * len(states))[0]))
        largest = amounts.amax(1)
        real = largest > least  # what is no prefix is followed by nothing
        if not bool(real.any()):
            return NextWords(torch.zeros_like(amounts, dtype=torch.int64), float("inf"))
        unit = float(largest[real].median())
        weights = (amounts / unit).round().sum(1) * unit
    counts = (amounts / unit).round().long()
    made = (counts - counts.sum(1, keepdim=True) * predicted).T @ states
    rate = float((made * change).sum() / made.square().sum().clamp(min=1e-300))
    return NextWords(counts, float((change - rate * made).square().mean().sqrt()) / max(noise, 1e-300))
