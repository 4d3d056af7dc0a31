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
    algorithm: PretrainedAlgorithm,
    model: Mapping[str, Tensor],
    gradient: Mapping[str, Tensor],
    texts: Tensor,
    *,
    is_scale_known: bool = True,
) -> LastWords:
    """Finds the word that follows each of the ``texts (M, L)``, padded with 0, after which nothing is read.

    The last word of a text is no input, but what the model should have predicted. The cross-entropy of logits l and a
    next word w is ``logsumexp(l) - l_w``, so the gradient is linear in the next words. With N next words in all texts,
    it is ``N gradient = c - sum_m J_m^T e_m``, where J_m is the Jacobian of the logits after text m, e_m is 1 at its
    last word, and c is all that is known. Least squares for the e_m by conjugate gradients needs products with J and
    its transpose only; it ends when the words with the largest entries leave nothing unexplained.

    Where the gradient was clipped, or clients have another rate than the server knows, a factor of it is unknown too.
    Then the part of both sides along the gradient is left out, which is all that the factor changes.

    Args:
        algorithm: the clients' algorithm.
        model: the global model.
        gradient: gradient of the mean cross-entropy of all next words, of one client.
        texts: the texts without their last words, each of which one sentence has.
        is_scale_known: whether the gradient is given with its length, and not up to a positive factor.
    """
    values = {name: value.detach() for name, value in model.items()}
    lengths = (texts > 0).sum(1)
    rows = torch.arange(len(texts))

    def after_each(parameters: dict[str, Tensor]) -> Tensor:
        return algorithm.outputs(parameters, {TOKENS: texts})

    def after_last(parameters: dict[str, Tensor]) -> Tensor:
        return after_each(parameters)[rows, lengths - 1]

    # The known part c = J^T (p - e): all predictions p, less the words that the texts themselves show to be next.
    logits, pull_all = vjp(after_each, values)[:2]
    known_error = logits.softmax(-1) * (texts > 0)[..., None]
    has_next = texts[:, 1:] > 0
    known_error[:, :-1].scatter_add_(2, texts[:, 1:, None], -has_next[..., None].to(known_error))
    known_gradient = pull_all(known_error)[0]
    # What the last words must explain: c - N gradient = sum_m J_m^T e_m; nothing of parameters without a gradient.
    target = {name: torch.zeros_like(value) for name, value in values.items()}
    for name in gradient:
        target[name] = known_gradient[name] - int(lengths.sum()) * gradient[name].to(known_gradient[name])
    if not is_scale_known:
        target = _across(target, gradient)
    target_norm = _norm(target)
    pull = vjp(after_last, values)[1]

    def pulled(scores: Tensor) -> dict[str, Tensor]:
        """``J^T`` times scores ``(M, V)``, of the parameters whose gradient is given."""
        product = pull(scores)[0]
        recorded = {name: value if name in gradient else torch.zeros_like(value) for name, value in product.items()}
        if not is_scale_known:
            recorded = _across(recorded, gradient)
        return recorded

    # Conjugate gradients on the normal equations J J^T e = J target.
    residual = target
    scores = torch.zeros_like(logits[rows, lengths - 1])
    ascent = jvp(after_last, (values,), (residual,))[1]
    direction = ascent
    ascent_square = float(ascent.square().sum())
    words = torch.zeros_like(lengths)
    for _ in range(_STEPS):
        image = pulled(direction)
        length = ascent_square / max(_norm(image) ** 2, 1e-300)
        scores = scores + length * direction
        words_before = words
        words = scores[:, 1:].argmax(1) + 1  # 0 is padding
        # Rounded to one word for each text, the solution is exact or wrong: it ends when it explains the target.
        if not torch.equal(words, words_before):
            explained = pulled(torch.zeros_like(scores).scatter_(1, words[:, None], 1.0))
            unexplained = {name: value - explained[name] for name, value in target.items()}
            if _norm(unexplained) <= _EXPLAINED * target_norm:
                break
        residual = {name: value - length * image[name] for name, value in residual.items()}
        ascent = jvp(after_last, (values,), (residual,))[1]
        square_before = ascent_square
        ascent_square = float(ascent.square().sum())
        direction = ascent + ascent_square / max(square_before, 1e-300) * direction
    best = scores[:, 1:].topk(2, dim=1).values
    return LastWords(words, best[:, 1] <= _CLEAR * best[:, 0])


def _across(values: Mapping[str, Tensor], gradient: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Values without their part along a gradient of some of them."""
    square = _norm(gradient) ** 2
    product = sum(float((values[name].double() * change.double()).sum()) for name, change in gradient.items())
    share = product / max(square, 1e-300)
    across = dict(values)
    for name, change in gradient.items():
        across[name] = values[name] - share * change.to(values[name])
    return across


def _norm(values: Mapping[str, Tensor]) -> float:
    return float(torch.stack([value.double().norm() for value in values.values()]).norm())
