"""Click patterns of short lists, and their distribution under a cascade model.

A list of n documents has ``2^n - 2`` patterns: clients do not send lists without clicks or with all documents clicked.
"""

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

LONGEST = 10
"""Maximum number of documents in a list, because the patterns are enumerated."""
CLICK_MODELS: dict[tuple[str, int], tuple[tuple[float, ...], tuple[float, ...]]] = {
    ("perfect", 3): ((0.0, 0.5, 1.0), (0.0, 0.0, 0.0)),
    ("navigational", 3): ((0.05, 0.5, 0.95), (0.2, 0.5, 0.9)),
    ("informational", 3): ((0.4, 0.7, 0.9), (0.1, 0.3, 0.5)),
    ("perfect", 5): ((0.0, 0.2, 0.4, 0.8, 1.0), (0.0, 0.0, 0.0, 0.0, 0.0)),
    ("navigational", 5): ((0.05, 0.3, 0.5, 0.7, 0.95), (0.2, 0.3, 0.5, 0.7, 0.9)),
    ("informational", 5): ((0.4, 0.6, 0.7, 0.8, 0.9), (0.1, 0.2, 0.3, 0.4, 0.5)),
}
"""P(click) and P(stop after a click) by grade, for 3 and 5 grades (Hofmann et al. 2013; RAIFLE, section V.B.2)."""
_SMALLEST = 1e-38
"""Least probability whose logarithm is taken in float32."""
_SMALLEST_LOG = -80
"""Logarithm between those of possible patterns of ten documents and that of `_SMALLEST`, which is about -87."""


@dataclass(frozen=True)
class CascadeStep:
    """Probabilities at each position of a cascade, ``(..., L)`` each: no click, click and continue, click and stop."""

    passed: Tensor
    clicked_on: Tensor
    clicked_stop: Tensor


@functools.cache
def patterns(length: int) -> Tensor:
    """``(2^L, L)`` all patterns as zeros and ones, float32; row r is the binary representation of r."""
    rows = torch.arange(2**length)[:, None]
    bits = rows >> torch.arange(length) & 1
    return bits.float()


@functools.cache
def pattern_pairs(length: int) -> tuple[Tensor, Tensor]:
    """Positions ``(2, P)`` of all pairs ``i <= j``, and ``(P, 2^L)`` the patterns that click both, float64."""
    positions = torch.triu_indices(length, length)
    codes = patterns(length).double().T
    return positions, codes[positions[0]] * codes[positions[1]]


def possible(mask: Tensor, *, every: bool = False) -> Tensor:
    """``(..., 2^L)`` True for patterns that can be sent by lists with ``mask (..., L)``.

    Some document is clicked, not all, and no padding; with `every`, none and all are possible too.
    """
    codes = patterns(mask.shape[-1]).to(mask.device)
    real = mask.float()
    clicked = real @ codes.T
    # A pattern is inside the list if all its clicks are at documents.
    inside = codes.sum(1) == clicked
    if every:
        return inside
    return inside & (clicked > 0) & (clicked < real.sum(-1, keepdim=True))


def steps_for_grades(click_model: str, grades: Tensor, num_grades: int) -> CascadeStep:
    """The cascade at documents with given grades ``(..., L)``."""
    click, stop = (torch.tensor(law, device=grades.device) for law in CLICK_MODELS[click_model, num_grades])
    p_click = click[grades]
    p_stop = stop[grades]
    return CascadeStep(
        passed=1 - p_click,
        clicked_on=p_click * (1 - p_stop),
        clicked_stop=p_click * p_stop,
    )


def steps_for_law(click_model: str, law: Sequence[float] | Tensor, length: int) -> CascadeStep:
    """The cascade ``(L,)`` at documents with independent grades from the distribution ``law (G,)``."""
    law = torch.as_tensor(law)
    click, stop = (torch.tensor(values, dtype=law.dtype) for values in CLICK_MODELS[click_model, len(law)])
    # Grades are independent, so each position has the mean over the grades.
    passed = (1 - click) @ law
    clicked_on = (click * (1 - stop)) @ law
    clicked_stop = (click * stop) @ law
    return CascadeStep(passed.expand(length), clicked_on.expand(length), clicked_stop.expand(length))


def cascade_log_law(steps: CascadeStep, mask: Tensor, *, every: bool = False, stale: bool = False) -> Tensor:
    """``(..., 2^L)`` log probability of every pattern of a list, given that it can be sent.

    The user reads the list from the top, passes or clicks each document, and may stop after a click.

    Args:
        steps: the cascade, ``(..., L)`` or ``(L,)``.
        mask: ``(..., L)`` True for documents; padding comes last.
        every: see `possible`.
        stale: as in RAIFLE's published code, which draws again what cannot be sent and does not clear it: after a draw
            of only clicks, the documents after a stop count as clicked.

    Returns:
        ``-inf`` for impossible patterns, and for all patterns of a list that cannot be sent.
    """
    if stale:
        return _stale_log_law(steps, mask)
    length = mask.shape[-1]
    codes = patterns(length).to(mask.device)
    passed, clicked, stop = (value.clamp(min=_SMALLEST).log() for value in _filled(steps, mask))
    # Log probability of continuing before each position, and of passing all documents after it.
    log_passed = passed[..., None, :]
    log_clicked = clicked[..., None, :]
    log_continue = codes * log_clicked + (1 - codes) * log_passed
    log_before = log_continue.cumsum(-1) - log_continue
    log_pass_after = _sums_from_here((1 - codes) * log_passed)
    # The last click is the position from which on the pattern has exactly one click.
    last_click = (codes > 0) & (_sums_from_here(codes) == 1)
    # After the last click the user stopped, or went on and passed all others.
    ends = torch.logaddexp(stop[..., None, :].expand(log_pass_after.shape), log_clicked + log_pass_after)
    total = ((log_before + ends) * last_click).sum(-1)
    total[..., 0] = passed.sum(-1)  # without a click, every document is passed
    # Below e^-80 a probability comes from the clamp of zeros above, so the pattern is impossible.
    impossible = ~possible(mask, every=every) | (total < _SMALLEST_LOG)
    total = total.masked_fill(impossible, -torch.inf)
    return total - _log_sum(total)


def _filled(steps: CascadeStep, mask: Tensor) -> Iterator[Tensor]:
    """The cascade's probabilities ``(..., L)`` each; at padding, the user passes."""
    for value, fill in ((steps.passed, 1.0), (steps.clicked_on, 0.0), (steps.clicked_stop, 0.0)):
        yield value.expand(mask.shape).masked_fill(~mask, fill)


def _stale_log_law(steps: CascadeStep, mask: Tensor) -> Tensor:
    """`cascade_log_law` with stale clicks: mixes the laws after a draw of no click and after one of only clicks."""
    codes = patterns(mask.shape[-1]).to(mask.device)
    passed, clicked_on, stop = _filled(steps, mask)
    p_continue = torch.where(codes > 0, clicked_on[..., None, :], passed[..., None, :])
    p_before = _shifted(p_continue.cumprod(-1)[..., :-1], before=1, value=1.0)
    # Stale clicks: a pattern that stopped at a click is seen if it has clicks at all documents after this one.
    clicked_or_padding = (codes > 0) | ~mask[..., None, :]
    clicked_to_end = clicked_or_padding.flip(-1).int().cumprod(-1).flip(-1)
    all_after = _shifted(clicked_to_end[..., 1:], before=0, value=1)
    stopped = (p_before * codes * stop[..., None, :] * all_after).sum(-1)
    stale = (stopped + p_continue.prod(-1)) * possible(mask, every=True)
    # A draw that cannot be sent, of no click or of only clicks, is repeated: from a cleared list or from stale clicks.
    fresh = cascade_log_law(steps, mask, every=True).exp()
    full = 2 ** mask.sum(-1, keepdim=True) - 1  # the pattern with a click at every document
    # Expected number of draws after one of only clicks, for each draw after one of no click.
    draws = fresh.gather(-1, full) / (1 - stale.gather(-1, full)).clamp(min=1e-12)
    law = (fresh + draws * stale).log().masked_fill(~possible(mask), -torch.inf)
    return law - _log_sum(law)


def uniform_log_law(mask: Tensor, *, every: bool = False) -> Tensor:
    """All patterns that can be sent are equally likely: ``(..., L)`` -> ``(..., 2^L)``."""
    total = torch.zeros(*mask.shape[:-1], 2 ** mask.shape[-1]).masked_fill(~possible(mask, every=every), -torch.inf)
    return total - _log_sum(total)


def count_log_law(steps: CascadeStep, mask: Tensor, *, every: bool = False) -> Tensor:
    """The number of clicks has the cascade's distribution; given the number, all patterns are equally likely."""
    law = cascade_log_law(steps, mask, every=every).exp()
    count = patterns(mask.shape[-1]).sum(1).long().to(mask.device)
    zeros = torch.zeros(*mask.shape[:-1], mask.shape[-1] + 1, device=mask.device)
    index = count.expand(law.shape)
    # Probability of each number of clicks, and the number of patterns among which it is shared equally.
    mass = zeros.scatter_add(-1, index, law)
    inside = possible(mask, every=every)
    members = zeros.scatter_add(-1, index, inside.float())
    share = mass / members.clamp(min=1)
    return share.gather(-1, index).masked_fill(~inside, 0.0).log()


def sample_patterns(log_law: Tensor, generator: torch.Generator) -> Tensor:
    """A pattern ``(..., L)`` from each law ``(..., 2^L)``; no click if the law is empty."""
    # Gumbel's trick; the exponential draws are at least a tiny number, so that no score is infinite.
    draws = torch.empty(log_law.shape).exponential_(generator=generator).clamp(min=1e-30)
    best = (log_law - draws.log()).argmax(-1)
    chosen: Tensor = patterns(int(log_law.shape[-1]).bit_length() - 1)[best]
    return chosen * torch.isfinite(log_law).any(-1, keepdim=True)


def _sums_from_here(values: Tensor) -> Tensor:
    """``(..., L)`` sum of each position and all after it."""
    return values.flip(-1).cumsum(-1).flip(-1)


def _shifted(values: Tensor, *, before: int, value: float) -> Tensor:
    """``(..., L - 1)`` values with one more, before (1) or after (0) them."""
    return torch.nn.functional.pad(values, (before, 1 - before), value=value)


def _log_sum(values: Tensor) -> Tensor:
    return values.logsumexp(-1, keepdim=True).nan_to_num(neginf=0.0)
