"""The last words of texts whose other words are known, from the update of a language model."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.func import jvp, vjp

from fedleak.client.pretrained import PretrainedAlgorithm
from fedleak.client.pretrained_examples import TOKENS

_STEPS = 10
"""Largest number of steps of conjugate gradients; right texts mostly need one."""
_EXPLAINED = 0.02
"""Relative norm that right words leave; one wrong word of M leaves about ``1 / sqrt(M)``."""
_CLEAR = 0.95
"""Largest score of another word, relative to the best, above which the last layer does not tell them apart."""


@dataclass(frozen=True)
class LastWords:
    """Last words of texts.

    Attributes:
        words: ``(M,)`` the word after each text.
        clear: ``(M,)`` whether no other word explains it nearly as well.
    """

    words: Tensor
    clear: Tensor


def last_words(
    algorithm: PretrainedAlgorithm, model: Mapping[str, Tensor], gradient: Mapping[str, Tensor], texts: Tensor
) -> LastWords:
    """Finds the word that follows each of the ``texts (M, L)``, padded with 0, after which nothing is read.

    The last word of a text is no input, but what the model should have predicted. The cross-entropy of logits l and a
    next word w is ``logsumexp(l) - l_w``, so the gradient is linear in the next words. With N next words in all texts,
    it is ``N gradient = c - sum_m J_m^T e_m``, where J_m is the Jacobian of the logits after text m, e_m is 1 at its
    last word, and c is all that is known. Least squares for the e_m by conjugate gradients needs products with J and
    its transpose only; it ends when the words with the largest entries leave nothing unexplained.

    Args:
        algorithm: the clients' algorithm.
        model: the global model.
        gradient: gradient of the mean cross-entropy of all next words, of one client.
        texts: the texts without their last words, each of which one sentence has.
    """
    values = {name: value.detach() for name, value in model.items()}
    lengths = (texts > 0).sum(1)
    rows = torch.arange(len(texts))

    def after_each(parameters: dict[str, Tensor]) -> Tensor:
        return algorithm.outputs(parameters, {TOKENS: texts})

    def after_last(parameters: dict[str, Tensor]) -> Tensor:
        return after_each(parameters)[rows, lengths - 1]

    logits, pull_all = vjp(after_each, values)[:2]
    wanted = logits.softmax(-1) * (texts > 0)[..., None]
    inside = texts[:, 1:] > 0
    wanted[:, :-1].scatter_add_(2, texts[:, 1:, None], -inside[..., None].to(wanted))
    known = pull_all(wanted)[0]
    left = {name: known[name] - int(lengths.sum()) * gradient[name].to(known[name]) for name in gradient}
    left = {**{name: torch.zeros_like(value) for name, value in values.items()}, **left}
    whole, size = left, _norm(left)
    pull = vjp(after_last, values)[1]

    def pulled(scores: Tensor) -> dict[str, Tensor]:
        """``J^T`` times scores ``(M, V)``, of the parameters whose gradient is given."""
        found = pull(scores)[0]
        return {name: value if name in gradient else torch.zeros_like(value) for name, value in found.items()}

    scores = torch.zeros_like(logits[rows, lengths - 1])
    ascent = jvp(after_last, (values,), (left,))[1]
    direction, power = ascent, float(ascent.square().sum())
    words = torch.zeros_like(lengths)
    for _ in range(_STEPS):
        image = pulled(direction)
        length = power / max(_norm(image) ** 2, 1e-300)
        scores = scores + length * direction
        before, words = words, scores[:, 1:].argmax(1) + 1  # 0 is padding
        if not torch.equal(words, before):
            made = pulled(torch.zeros_like(scores).scatter_(1, words[:, None], 1.0))
            if _norm({name: value - made[name] for name, value in whole.items()}) <= _EXPLAINED * size:
                break
        left = {name: value - length * image[name] for name, value in left.items()}
        ascent = jvp(after_last, (values,), (left,))[1]
        last, power = power, float(ascent.square().sum())
        direction = ascent + power / max(last, 1e-300) * direction
    best = scores[:, 1:].topk(2, dim=1).values
    return LastWords(words, best[:, 1] <= _CLEAR * best[:, 0])


def _norm(values: Mapping[str, Tensor]) -> float:
    return float(torch.stack([value.double().norm() for value in values.values()]).norm())
