"""Upper bounds on the AUC and the accuracy of every attack, from the bits that an update can carry.

A client has n served items, of which k are positive; the server knows both numbers. Given k, the labels y have an
entropy of H bits, ``log2 binom(n, k)`` if all choices of k items are equally likely. The client sends an update of norm
at most c with Gaussian noise of standard deviation sigma on each of its d numbers, so that the server learns at most
``C = d/2 log2(1 + c^2 / (d sigma^2))`` bits of y, whatever the features, the model and the clients' algorithm
(`capacity_bits`).

*Ranking.* An attack ranks the items. The word of k ones and n - k zeros that y forms along this ranking has D
inversions, and ``AUC = 1 - D / (k (n - k))``. The entropy that remains, at least H - C, is at most that of the word;
and of all distributions of such words with mean D, the one with the most entropy has probabilities proportional to
``q^inversions``. Its normaliser is the Gaussian binomial coefficient ``G(q) = prod_{j=1..k} (1 - q^(n-k+j)) / (1 -
q^j)``, so that ``H - C <= log2 G(q) - E[D] log2 q`` where q is chosen such that the mean is E[D]. Solved for E[D], this
bounds the AUC; it is 0.5 where C = 0 and all choices are equally likely, and 1 where C reaches H. For small C the best
code, an orthogonal one of equal energies, has 98 % (``sqrt(3 / pi)``) of the bound's excess over 0.5.

*Pairs.* If all choices are equally likely, ordering a positive and a negative item is a test between y and y with the
two labels exchanged. Their updates are at most 2 c apart, so a Gaussian mechanism of ``mu = 2 c / sigma`` limits the
accuracy to ``Phi(mu / 2)``.

*Accuracy.* By Fano's inequality the share e of wrongly decided items satisfies ``n h(e) >= H - C``, h the binary
entropy.

References:
    [Cover06], sections 2.10, 9.4 and 12.1.
    [Stanley11], proposition 1.7.1 (inversions and G).
    [Dong22] (trade-off functions).
    [Shannon49] (capacity).
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from fedleak.client.click_models import patterns

_HALVINGS = 60
"""Steps of bisection; each halves the interval."""
_LEAST = 1e-7
"""Smallest ``-log q`` of a bisection."""
_MOST = 60.0
"""Largest ``-log q``."""


def capacity_bits(*, clip: float, noise_scale: float, dimensions: Tensor) -> Tensor:
    """``(V,)`` capacity in bits of clipped updates of ``dimensions (V,)`` numbers under Gaussian noise.

    The energy of an update is at most ``clip^2``, spread over parallel Gaussian channels.

    Args:
        clip: L2 norm to which an update is clipped.
        noise_scale: standard deviation of the noise, more than 0.
        dimensions: numbers of each update.
    """
    d = dimensions.double().clamp(min=1)
    capacity: Tensor = d / 2 * torch.log1p((clip / noise_scale) ** 2 / d) / math.log(2)
    return capacity


def choice_bits(items: Tensor, positives: Tensor) -> Tensor:
    """``(V,)`` entropy in bits of labels of which all choices of k among n items are equally likely."""
    n, k = items.double(), positives.double()
    nats: Tensor = torch.lgamma(n + 1) - torch.lgamma(k + 1) - torch.lgamma(n - k + 1)
    return nats / math.log(2)


def pattern_bits(log_law: Tensor) -> Tensor:
    """``(V,)`` entropy in bits of the clicks on independent lists with laws ``log_law (V, Q, 2^L)``."""
    nats: Tensor = torch.special.entr(log_law.double().exp()).sum((1, 2))
    return nats / math.log(2)


def pattern_bits_given_count(log_law: Tensor, positives: Tensor) -> Tensor:
    """``(V,)`` entropy in bits of the clicks on independent lists, given their total number.

    Args:
        log_law: ``(V, Q, 2^L)`` log probability of every pattern of every list; a list without patterns has no clicks.
        positives: ``(V,)`` number of clicks.
    """
    law = log_law.double().exp()
    victims, lists = law.shape[:2]
    length = int(log_law.shape[-1]).bit_length() - 1
    clicks = patterns(length).sum(1).long().expand(law.shape)
    # By number of clicks: probability, and sum of p log p; both convolve over the lists.
    empty = torch.zeros(victims, lists, length + 1, dtype=law.dtype)
    chance = empty.scatter_add(2, clicks, law)
    nats = empty.scatter_add(2, clicks, -torch.special.entr(law))
    # A list without patterns has no clicks for certain.
    chance[..., 0] += law.sum(2) == 0
    total = torch.zeros(victims, lists * length + 1, dtype=law.dtype)
    total[:, 0] = 1
    weighted = torch.zeros_like(total)
    for number in range(lists):
        # sum p q log(p q) = sum p (q log q) + (p log p) q
        list_chance, list_nats = chance[:, number], nats[:, number]
        weighted = _convolved(total, list_nats) + _convolved(weighted, list_chance)
        total = _convolved(total, list_chance)
    # H = log P - (sum p log p) / P at the number of clicks, whose probability is P.
    at_count = positives.long()[:, None]
    p = total.gather(1, at_count).squeeze(1)
    w = weighted.gather(1, at_count).squeeze(1)
    bits: Tensor = (p.log() - w / p) / math.log(2)
    return bits.clamp(min=0)


def _convolved(long: Tensor, short: Tensor) -> Tensor:
    """``(V, N)`` convolution of rows ``(V, N)`` and ``(V, M)``, cut to N."""
    shifted = [torch.nn.functional.pad(long, (step, 0))[:, : long.shape[1]] for step in range(short.shape[1])]
    return (torch.stack(shifted, dim=2) * short[:, None]).sum(2)


def auc_bound(*, items: Tensor, positives: Tensor, entropy: Tensor, bits: Tensor) -> Tensor:
    """``(V,)`` largest mean AUC of any attack on clients with given numbers; see the module.

    Args:
        items: ``(V,)`` number of items.
        positives: ``(V,)`` number of positive items; NaN is returned where there are none, or no others.
        entropy: ``(V,)`` entropy of the labels in bits, given the number of positive items.
        bits: ``(V,)`` bits that the server receives.
    """
    # G is the same for k and n - k, so the product runs over the smaller number.
    rare = torch.minimum(positives, items - positives).double()
    often = items.double() - rare
    most = int(rare.max()) if len(rare) else 0
    step = torch.arange(1, max(most, 1) + 1, dtype=torch.float64)
    larger_step = step + often[:, None]
    inside = step <= rare[:, None]

    def mean_and_entropy(log_q: Tensor) -> tuple[Tensor, Tensor]:
        """E[D] and the entropy in bits of words with probabilities proportional to q^D, for ``log_q`` = -log q."""
        # log G = sum_j log(1 - q^(n-k+j)) - log(1 - q^j), and E[D] is its derivative by log q.
        small = log_q[:, None] * step
        large = log_q[:, None] * larger_step
        logs = torch.log(-torch.expm1(-large)) - torch.log(-torch.expm1(-small))
        mean = step / torch.expm1(small) - larger_step / torch.expm1(large)
        inversions = (mean * inside).sum(1)
        # log2 G - E[D] log2 q
        entropy_of_words = ((logs * inside).sum(1) + log_q * inversions) / math.log(2)
        return inversions, entropy_of_words

    # The q whose words have the entropy that remains; AUC = 1 - E[D] / (k (n - k)).
    remaining = (entropy - bits).double()
    log_q = _bisected(lambda point: mean_and_entropy(point)[1] > remaining, like=remaining)
    inversions, _ = mean_and_entropy(log_q)
    bound = 1 - inversions / (rare * often)
    # Nothing remains unknown where the bits reach the entropy; without both kinds there is no AUC.
    bound = bound.clamp(0.5, 1.0).masked_fill(remaining <= 0, 1.0)
    return bound.masked_fill(rare < 1, torch.nan)


def pair_bound(*, clip: float, noise_scale: float) -> float:
    """Largest AUC of any attack on updates clipped to `clip`, if all choices of the positive items are equally likely.

    Raises:
        ZeroDivisionError: there is no noise.
    """
    return 0.5 * (1 + math.erf(clip / noise_scale / math.sqrt(2)))


def accuracy_bound(*, items: Tensor, entropy: Tensor, bits: Tensor) -> Tensor:
    """``(V,)`` largest share of rightly decided items of any attack; see `auc_bound` for the arguments."""
    remaining = ((entropy - bits).double() / items).clamp(0, 1)

    def below(logit: Tensor) -> Tensor:
        """Whether the binary entropy h(e) is above what remains, for the share e = sigmoid(-logit) of errors."""
        wrong = torch.sigmoid(-logit)
        nats: Tensor = torch.special.entr(wrong) + torch.special.entr(1 - wrong)
        return nats / math.log(2) > remaining

    logit = _bisected(below, like=remaining)
    return torch.sigmoid(logit).masked_fill(remaining <= 0, 1.0)


def _bisected(below: Callable[[Tensor], Tensor], *, like: Tensor) -> Tensor:
    """``(V,)`` smallest points, shaped `like`, at which the root of a decreasing function is not above them."""
    # In the logarithm of the point, from _LEAST to _MOST.
    low = torch.full_like(like, math.log(_LEAST))
    high = torch.full_like(like, math.log(_MOST))
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        above = below(middle.exp())
        low = torch.where(above, middle, low)
        high = torch.where(above, high, middle)
    return high.exp()
