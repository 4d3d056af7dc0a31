"""Declarations of the clients that their own updates prove false, without any attack."""

import itertools
import math
from collections.abc import Iterator, Sequence

import torch
from scipy.stats import chi2
from torch import Tensor

from fedleak.core.declared_noise import IMPOSSIBLE, is_last_noise, noise_chances, sent_numbers
from fedleak.core.release import Release
from fedleak.core.view import RoundView
from fedleak.recordings.recording import Recording

_VIEWS, _VICTIMS = 4, 16
_LONGER = 1.01
"""Norm of an update over its clip, above which it is no error of rounding."""
_ROUNDING = 1e-5
"""Error of rounding of an update relative to the model, of which recordings of models are differences."""
_EXACT_BITS = 16
"""Bits a number from which on rounding changes no norm by 1 %."""
_COMMON_BITS = 64
"""Bits of a message besides those of its numbers, see `fedleak.core.release.Release.bits`."""
_FEW_BITS, _MARGIN, _MARGIN_OF_FEW = 4.0, 1.0, 4.0
"""Bits that numbers must have beyond the declared ones: less than `_FEW_BITS` may be the capacity of random answers,
which take more."""


def false_declarations(recording: Recording) -> list[str]:
    """A sentence on each declaration that the updates of the first rounds contradict."""
    views = recording.views(victims_per_view=_VICTIMS, rounds=recording.rounds[:_VIEWS])
    return false_in_views(list(itertools.islice(views, _VIEWS)))


def false_in_views(views: Sequence[RoundView]) -> list[str]:
    """The sentences of `false_declarations` about some views of one recording.

    * *Noise*: an update that holds noise of standard deviation s on d numbers is as short as the recorded one with a
      probability of 1e-9 at most, see `fedleak.core.declared_noise`.
    * *Clip*: an update is longer than its clip, and longer by more than the declared noise is with that probability. A
      clip before a rounding to few bits is not tested, as rounding at random makes an update longer.
    * *Bits*: the numbers of a tensor have more different values than the declared bits can name. Sums of several
      clients' numbers are not tested, nor numbers with noise added to them.

    Sums of several messages of one client are left out, as their number counts.
    """
    views = [view for view in views if view.updates is None and view.messages is None and view.victims]
    if not views:
        return []
    checks = (_noise(views), _clip(views), _bits(views))
    return [sentence for check in checks for sentence in check]


def _noise(views: Sequence[RoundView]) -> Iterator[str]:
    chances = torch.cat([noise_chances(view) for view in views])
    tested = chances.isfinite()
    refuted = chances < IMPOSSIBLE / max(int(tested.sum()), 1)
    if not bool(refuted.any()):
        return
    names = [name for name in views[0].deltas if is_last_noise(views[0], name)]
    scales = sorted({views[0].noise_scale(name) for name in names})
    alone = math.sqrt(sum(float(sent_numbers(views[0], n).mean()) * views[0].noise_scale(n) ** 2 for n in names))
    norms = torch.cat([_norms(view, names) for view in views])[refuted]
    known = f"{scales[0]:.3g}" if len(scales) == 1 else f"{scales[0]:.3g} to {scales[-1]:.3g}"
    yield (
        f"The declared noise is not there: noise of standard deviation {known} alone has a norm of about {alone:.3g},"
        f" and {int(refuted.sum())} of {int(tested.sum())} updates are shorter, with a median of"
        f" {float(norms.median()):.3g}"
    )


def _clip(views: Sequence[RoundView]) -> Iterator[str]:
    releases = views[0].releases
    for place, release in enumerate(releases):
        if release.clip is None or not release.own_devices or _may_lengthen(release, releases[place + 1 :]):
            continue
        longer = torch.cat([_longer(view, release) for view in views])
        if bool(longer.any()):
            norms = torch.cat([_norms(view, release.parameters) for view in views])
            noise = " and the declared noise" if views[0].noise_scale(release.parameters[0]) else ""
            yield (
                f"The declared clip is not there: the clients declare a norm of at most {release.clip:.3g},"
                f" and {int(longer.sum())} of {len(longer)} updates are longer than that{noise}, with a median of"
                f" {float(norms[longer].median()):.3g}"
            )


def _may_lengthen(clip: Release, later: Sequence[Release]) -> bool:
    """Whether clients round what they have clipped to so few bits that it may be longer than the clip."""
    of_same = [release for release in later if set(release.parameters) & set(clip.parameters)]
    return any(release.bits is not None and release.bits < _EXACT_BITS for release in of_same)


def _longer(view: RoundView, release: Release) -> Tensor:
    """``(V,)`` bool, updates that are longer than a clip, by more than the declared noise can be."""
    names = [name for name in release.parameters if name in view.deltas]
    if not names:
        return torch.zeros(view.victims, dtype=torch.bool)
    summed = max(one.participants for one in view.releases if set(one.parameters) & set(names))
    noise = max(view.noise_scale(name) for name in names)
    numbers = torch.stack([sent_numbers(view, name) for name in names]).sum(0).clamp(min=1)
    # ||u + z|| <= ||u|| + ||z||, where a sum of n clipped updates has a norm of n clips at most.
    longest = noise * torch.from_numpy(chi2.isf(IMPOSSIBLE, numbers.numpy())).sqrt()
    models = [view.model[name].double().square().sum() for name in names if name in view.model]
    rounding = _ROUNDING * float(torch.stack(models).sum().sqrt()) if models else 0.0
    allowed = _LONGER * (summed * (release.clip or 0.0) + longest) + rounding
    return _norms(view, names) > allowed


def _bits(views: Sequence[RoundView]) -> Iterator[str]:
    releases = views[0].releases
    for place, release in enumerate(releases):
        if release.bits is None or _are_other_numbers(release, releases[place + 1 :]):
            continue
        names = [name for name in release.parameters if name in views[0].deltas]
        margin = _MARGIN if release.bits >= _FEW_BITS else _MARGIN_OF_FEW
        for name in names:
            numbers = torch.cat([view.deltas[name].reshape(view.victims, -1) for view in views])
            allowed = release.bits + _COMMON_BITS / numbers.shape[1] + margin
            entropies = torch.tensor([value_bits(row) for row in numbers], dtype=torch.float64)
            if bool((entropies > allowed).any()):
                different = max(len(torch.unique(row)) for row in numbers)
                yield (
                    f"The declared {release.bits:.3g} bits a number are not there: an update of {name} has up to"
                    f" {different:,} different values, which take {float(entropies.max()):.1f} bits a number, unless"
                    " they are decoded from other numbers that have so few"
                )
                break


def _are_other_numbers(bits: Release, later: Sequence[Release]) -> bool:
    """Whether the recorded numbers are others than those of few bits: sums of several clients', or with noise added."""
    of_same = [release for release in later if set(release.parameters) & set(bits.parameters)]
    return any(release.participants > 1 or release.noise_scale > 0 for release in of_same)


def value_bits(numbers: Tensor) -> float:
    """Entropy in bits of the values of ``numbers (N,)``: what a code for each number by itself takes.

    >>> value_bits(torch.tensor([0.0, 0.0, 1.0, -1.0]))
    1.5
    """
    counts = torch.unique(numbers, return_counts=True)[1].double()
    shares = counts / counts.sum()
    return float(-(shares * shares.log2()).sum())


def _norms(view: RoundView, names: Sequence[str]) -> Tensor:
    """``(V,)`` norms of the updates of some parameters together."""
    sent = [view.deltas[name].double().reshape(view.victims, -1) for name in names if name in view.deltas]
    held = [numbers.square().sum(1) for numbers in sent]
    return torch.stack(held).sum(0).sqrt()
