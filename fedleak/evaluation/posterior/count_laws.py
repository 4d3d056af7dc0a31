"""Laws of class counts of clients with a given number of examples, learned from the counts of clients."""

import abc
import functools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.ndimage import gaussian_filter1d
from scipy.special import gammaln

from fedleak.evaluation.posterior.count_sums import Floats, Ints, log_total

_CONCENTRATIONS = 2.0 ** np.arange(-10, 12.5, 0.5)
"""Concentrations for each class, among them 1, for which all counts of one total are equally likely."""
_MEAN_WEIGHTS = (0.0, 0.5, 0.8, 0.95, 0.99)
"""Weights of the clients' mean shares against equal shares."""
_BINS = 1000
"""Bins of the histogram of shares between 0 and 1."""
_WIDTHS = (0.002, 0.02, 0.08)
"""Widths, as shares, to which the histogram is smoothed."""
_CLASS_WEIGHTS = (0.0, 0.5, 0.9)
"""Weights of the histogram of each class against that of all classes."""
_ELSEWHERE = 0.01
"""Weight of counts that no client has, which are equally likely."""
_GROUPS = 5


class CountLaw(abc.ABC):
    """Law of counts with a given total: a product of one weight for each class, over the sum of these products."""

    @abc.abstractmethod
    def log_weights(self, totals: Ints) -> Floats:
        """``(V, K, J)`` logarithms of the weights of counts 0 to the largest of ``totals (V,)``.

        Minus infinity above a row's own total.
        """

    def log_probability(self, counts: Ints) -> Floats:
        """``(V,)`` natural logarithm of the probability of counts ``(V, K)`` among all of the same totals."""
        totals = counts.sum(1)
        weights = self.log_weights(totals)
        # log p(n) = sum_k log w_k(n_k) - log Z, where Z sums over all counts with this total.
        of_counts = np.take_along_axis(weights, counts[..., None], 2)[..., 0].sum(1)
        probability: Floats = of_counts - log_total(weights, totals)
        return probability


@dataclass(frozen=True)
class DirichletLaw(CountLaw):
    """Dirichlet-multinomial law: shares of a Dirichlet law, and examples drawn from them.

    Its weights are ``Gamma(n + a) / (n! Gamma(a))``. With a = 1 all counts of one total are equally likely.

    Attributes:
        alpha: ``(K,)`` concentrations a.

    References:
        [Mosimann62]; [Minka00].
    """

    alpha: Floats

    def log_weights(self, totals: Ints) -> Floats:
        counts = np.arange(int(totals.max()) + 1)
        alpha = self.alpha[:, None]
        # log w_k(n) = log Gamma(n + a_k) - log n! - log Gamma(a_k)
        weights = gammaln(counts + alpha) - gammaln(counts + 1) - gammaln(alpha)
        inside: Floats = np.where(counts <= totals[:, None, None], weights, -np.inf)
        return inside

    def log_probability(self, counts: Ints) -> Floats:
        # The sum over all counts has a closed form, the weight of the total for the sum of the concentrations.
        # The sum over all counts has a closed form, the weight of the total for the sum of the concentrations.
        totals = counts.sum(1)
        alpha_sum = self.alpha.sum()
        of_counts = (gammaln(counts + self.alpha) - gammaln(counts + 1) - gammaln(self.alpha)).sum(1)
        log_normaliser = gammaln(totals + alpha_sum) - gammaln(totals + 1) - gammaln(alpha_sum)
        probability: Floats = of_counts - log_normaliser
        return probability


@dataclass(frozen=True)
class HistogramLaw(CountLaw):
    """Law whose weights are the shares of clients that have about as large a share of a class.

    For clients that no Dirichlet-multinomial law describes, e.g. with two classes of equal size each.

    Attributes:
        absent: ``(K,)`` share of clients without examples of a class.
        density: ``(K, B + 1)`` smoothed density of the shares above 0, times the share of clients that have some.
    """

    absent: Floats
    density: Floats

    @classmethod
    def of(cls, counts: Ints, width: float) -> "HistogramLaw":
        """The law of counts ``(V, K)`` of clients, with shares that are smoothed to a width."""
        shares = counts / counts.sum(1, keepdims=True)
        present = shares > 0
        # Each client adds _BINS / V to the bin of its share, so that a class that all have has an area of 1.
        bins = np.zeros((counts.shape[1], _BINS + 1))
        _, classes = present.nonzero()
        bin_of_share = (shares[present] * _BINS).round().astype(int)
        np.add.at(bins, (classes, bin_of_share), _BINS / len(counts))
        density = gaussian_filter1d(bins, width * _BINS, axis=1, mode="constant", truncate=3.0)
        return cls(1 - present.mean(0), density)

    def pooled(self, class_weight: float) -> "HistogramLaw":
        """The law with this weight of the histogram of each class, against the mean one of all classes."""
        absent = class_weight * self.absent + (1 - class_weight) * self.absent.mean()
        density = class_weight * self.density + (1 - class_weight) * self.density.mean(0)
        return HistogramLaw(absent, density)

    def log_weights(self, totals: Ints) -> Floats:
        bin_shares = np.linspace(0, 1, _BINS + 1)
        numbers = np.arange(int(totals.max()) + 1)
        weights = np.full((len(totals), len(self.absent), len(numbers)), -np.inf)
        # Clients of one total have the same weights.
        for total in np.unique(totals):
            shares = numbers[: total + 1] / total
            # A count stands for an interval of 1 / total of the shares, so the density becomes a probability by it.
            of_classes = [np.interp(shares, bin_shares, density) / total for density in self.density]
            in_cells = np.stack(of_classes)
            in_cells[:, 0] = self.absent
            # Counts that no client has are possible too.
            mixed = (1 - _ELSEWHERE) * in_cells + _ELSEWHERE / (total + 1)
            has_total = totals == total
            weights[has_total, :, : total + 1] = np.log(mixed)
        return weights


def likeliest_law(counts: Ints, people: Ints) -> CountLaw:
    """The law under which the counts of clients are likeliest.

    Of the parameters of each kind, those that give counts of one fifth of the people the largest probability after they
    were fitted to the others; a histogram, which has more parameters, only where it is better by two standard errors.
    The law is then fitted to all. It is never less likely than equally likely counts, so the mean of ``-log2
    p(counts)`` is at most the logarithm of the number of possible counts.

    Args:
        counts: ``(V, K)`` class counts.
        people: ``(V,)`` number of the person, whose counts in several rounds depend on one another.
    """
    return _likeliest_law(counts.tobytes(), counts.shape, people.tobytes())


@functools.lru_cache(maxsize=32)
def _likeliest_law(counts_bytes: bytes, shape: tuple[int, ...], people_bytes: bytes) -> CountLaw:
    """`likeliest_law`, fitted once for all attacks on a question."""
    counts = np.frombuffer(counts_bytes, dtype=np.int64).reshape(shape)
    people = np.frombuffer(people_bytes, dtype=np.int64)
    _, person = np.unique(people, return_inverse=True)
    groups = person % _GROUPS
    smooth = _likeliest(_dirichlet_laws, counts, groups)
    histogram = _likeliest(_histogram_laws, counts, groups)
    # The histogram has to be better by two standard errors of the mean over clients.
    better = histogram.of_others - smooth.of_others
    error = math.inf
    if len(better) > 1:
        error = better.std(ddof=1) / math.sqrt(len(better))
    chosen = histogram.law if better.mean() > 2 * error else smooth.law
    # Never less likely than equally likely counts.
    equally_likely = DirichletLaw(np.ones(counts.shape[1]))
    return max((chosen, equally_likely), key=lambda law: float(law.log_probability(counts).sum()))


class _Fitted(NamedTuple):
    """A law, and the logarithms ``(V,)`` of the probabilities of counts after it was fitted to other people."""

    law: CountLaw
    of_others: Floats


def _likeliest(kind: Callable[[Ints], Iterator[CountLaw]], counts: Ints, groups: Ints) -> _Fitted:
    """The law of a kind under which the counts of each of the ``groups (V,)`` are likeliest if fitted to the others."""
    candidates = len(list(kind(counts[:1])))
    of_others = np.zeros((len(counts), candidates))
    # Each group's counts have their probability from laws that were fitted to the other groups.
    for group in np.unique(groups):
        inside = groups == group
        train = counts if inside.all() else counts[~inside]
        for column, law in enumerate(kind(train)):
            of_others[inside, column] = law.log_probability(counts[inside])
    best = int(of_others.sum(0).argmax())
    # The parameters that are best there, fitted to all.
    laws = list(kind(counts))
    return _Fitted(laws[best], of_others[:, best])


def _dirichlet_laws(counts: Ints) -> Iterator[CountLaw]:
    """Laws with each concentration, whose mean lies between equal shares and the mean share of counts ``(V, K)``."""
    mean = (counts / counts.sum(1, keepdims=True)).mean(0)
    classes = counts.shape[1]
    for weight in _MEAN_WEIGHTS:
        for concentration in _CONCENTRATIONS:
            # Concentrations a_k with the mean `concentration` over classes.
            yield DirichletLaw(concentration * ((1 - weight) + weight * classes * mean))


def _histogram_laws(counts: Ints) -> Iterator[CountLaw]:
    """Laws with each width, and each weight of a class's own histogram, of counts ``(V, K)``."""
    for width in _WIDTHS:
        of_classes = HistogramLaw.of(counts, width)
        for class_weight in _CLASS_WEIGHTS:
            yield of_classes.pooled(class_weight)
