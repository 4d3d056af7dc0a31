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

_VIEWS = 4
"""Views that are tested: of the first rounds."""
_VICTIMS = 16
"""Clients of each view."""
_LONGER = 1.01
"""Norm of an update over its clip, above which it is no error of rounding."""
_ROUNDING = 1e-5
"""Error of rounding of an update relative to the model, of which recordings of models are differences."""
_EXACT_BITS = 16
"""Bits a number from which on rounding changes no norm by 1 %."""
_COMMON_BITS = 64
"""Bits of a message besides those of its numbers, see `fedleak.core.release.Release.bits`."""
_FEW_BITS = 4.0
"""Declared bits a number below which they may be the capacity of random answers, which take more."""
_MARGIN = 1.0
"""Bits that numbers must have beyond the declared ones."""
_MARGIN_OF_FEW = 4.0
"""The same where few are declared."""


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
    return [*_noise(views), *_clip(views), *_bits(views)]


def _noise(views: Sequence[RoundView]) -> Iterator[str]:
    """Noise that is declared, and without which an update is as short only by a probability of 1e-9."""
    chances = torch.cat([noise_chances(view) for view in views])
    tested = chances.isfinite()
    # For all updates together (Bonferroni).
    refuted = chances < IMPOSSIBLE / max(int(tested.sum()), 1)
    if not bool(refuted.any()):
        return
    first = views[0]
    names = [name for name in first.deltas if is_last_noise(first, name)]
    scales = sorted({first.noise_scale(name) for name in names})
    # The noise alone has a squared norm of sum_k d_k s_k^2 on average.
    squared_norm = sum(float(sent_numbers(first, name).mean()) * first.noise_scale(name) ** 2 for name in names)
    noise_norm = math.sqrt(squared_norm)
    norms = torch.cat([_norms(view, names) for view in views])[refuted]
    declared = f"{scales[0]:.3g}" if len(scales) == 1 else f"{scales[0]:.3g} to {scales[-1]:.3g}"
    yield (
        f"The declared noise is not there: noise of standard deviation {declared} alone has a norm of about"
        f" {noise_norm:.3g}, and {int(refuted.sum())} of {int(tested.sum())} updates are shorter, with a median of"
        f" {float(norms.median()):.3g}"
    )


def _clip(views: Sequence[RoundView]) -> Iterator[str]:
    """Clips of the clients' own devices that an update is longer than."""
    releases = views[0].releases
    for position, release in enumerate(releases):
        later = releases[position + 1 :]
        if release.clip is None or not release.own_devices or _may_lengthen(release, later):
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
    summed = 0
    for later in view.releases:
        if set(later.parameters) & set(names):
            summed = max(summed, later.participants)
    noise = max(view.noise_scale(name) for name in names)
    numbers = torch.stack([sent_numbers(view, name) for name in names]).sum(0).clamp(min=1)
    # ||u + z|| <= ||u|| + ||z||, where a sum of n clipped updates has a norm of n clips at most.
    largest_square = torch.from_numpy(chi2.isf(IMPOSSIBLE, numbers.numpy()))
    longest = noise * largest_square.sqrt()
    # Differences of recorded models have the rounding of the model.
    squares = [view.model[name].double().square().sum() for name in names if name in view.model]
    rounding = 0.0
    if squares:
        rounding = _ROUNDING * float(torch.stack(squares).sum().sqrt())
    clip = summed * (release.clip or 0.0)
    allowed = _LONGER * (clip + longest) + rounding
    return _norms(view, names) > allowed


def _bits(views: Sequence[RoundView]) -> Iterator[str]:
    """Bits a number that the values of an update do not fit in."""
    releases = views[0].releases
    for position, release in enumerate(releases):
        if release.bits is None or _are_other_numbers(release, releases[position + 1 :]):
            continue
        names = [name for name in release.parameters if name in views[0].deltas]
        margin = _MARGIN if release.bits >= _FEW_BITS else _MARGIN_OF_FEW
        for name in names:
            numbers = torch.cat([view.deltas[name].reshape(view.victims, -1) for view in views])
            # The bits of a message besides its numbers are spread over these.
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
    squares = []
    for name in names:
        if name in view.deltas:
            numbers = view.deltas[name].double().reshape(view.victims, -1)
            squares.append(numbers.square().sum(1))
    return torch.stack(squares).sum(0).sqrt()
