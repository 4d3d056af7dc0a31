"""Attributes of people by a linear discriminant of their updates, learned from people whose attributes are known.

The discriminant is for a few people with many numbers each, whitened in the span of their vectors.
"""

import dataclasses
import itertools
import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fedleak.attacks.attributes.estimates import AttributeEstimate
from fedleak.attacks.attributes.messages import AttributeAttack, People, cosines, products_of_rounds
from fedleak.attacks.linear_algebra import covariance_within, orthonormal_combinations, whitening
from fedleak.core.history import History
from fedleak.core.ranges import AtLeastTwo

_RANK = 1e-9
"""Share of the largest eigenvalue below which a direction is considered rounding."""


@dataclass(frozen=True, kw_only=True)
class AttributeLDA(AttributeAttack):
    """Linear discriminant of the updates of each round and layer, learned from people whose attributes are known.

    The updates of a layer, without the round's mean and at unit length, enter a `Discriminant`, which gives each person
    the log-odds of every value. The log-odds of all rounds and layers are summed, each with the weight from 0 to 1 with
    which the sum is the most likely for the known people; for this, a known person gets them from classifiers that were
    trained without it. Only inner products of updates are used, so the cost hardly grows with the model.

    Threat model: passive server that sees each update, under a name that stays, and knows the attributes of some of the
    people; nobody is asked about whose attributes it knows.

    Args:
        folds: folds of the cross-validation among the known people, see `Discriminant`.
        fewest: rounds with fewer known people are not used.

    References:
        This project.
    """

    name = "attribute-lda"
    with_prior = "likelihood"
    quadratic = True
    cost = "`folds` times 15 logistic regressions for each round, layer and attribute"

    folds: AtLeastTwo = 5
    fewest: AtLeastTwo = 10

    def run(self, view: History, *, generator: torch.Generator) -> AttributeEstimate:
        people, machine = People.of(view), Discriminant(folds=self.folds)
        seed = int(torch.randint(2**31 - 1, (), generator=generator))
        of_all: dict[str, list[torch.Tensor]] = {name: [] for name in people.values}
        of_known: dict[str, list[torch.Tensor]] = {name: [] for name in people.values}
        for senders, layers in products_of_rounds(view):
            place = people.places(senders)
            usable = [name for name, values in people.values.items() if _enough(values[place], self.fewest)]
            for inner in map(cosines, layers.values() if usable else ()):
                for name in usable:
                    held, classes = people.values[name][place], people.classes(name)
                    known = (held >= 0).nonzero().flatten()
                    found = machine.evidence(inner, known, held[known], classes, seed=seed)
                    whole, left_out = torch.zeros(2, len(people.names), classes, dtype=torch.float64)
                    whole[place], left_out[place[known]] = found
                    of_all[name].append(whole)
                    of_known[name].append(left_out)
        evidence = {}
        for name, values in people.values.items():
            evidence[name] = torch.zeros(len(people.names), people.classes(name), dtype=torch.float64)
            if of_all[name]:
                asked = values >= 0
                evidence[name] = stacked(of_all[name], [found[asked] for found in of_known[name]], values[asked])
        return people.estimate(evidence)


def _enough(values: torch.Tensor, fewest: int) -> bool:
    """Whether enough of the people in a round have known values ``(V,)``, and not all the same."""
    known = values[values >= 0]
    return len(known) >= fewest and len(torch.unique(known)) > 1


Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Discriminant:
    """Logistic ridge regression after whitening by the shrunk covariance within the classes.

    Vectors enter by their inner products only. In the span of the known people's vectors, ``x`` becomes ``W^(-1/2) x``
    with ``W = (1 - s) S + s tr(S) / R``, S the covariance around the mean of the own class and R the rank; the
    shrinkage s and the penalty are those with the largest likelihood in a cross-validation among the known people, in
    each fold of which S is computed anew.

    Attributes:
        shrinkages: tried values of s; 1 is no whitening.
        penalties: tried inverse strengths of the ridge penalty, of vectors with mean square 1 per direction.
        folds: number of folds.

    References:
        Hastie, Tibshirani and Friedman, "The Elements of Statistical Learning", 2009, sections 4.3.1, 7.10 and 18.3.5.
    """

    shrinkages: tuple[float, ...] = (0.1, 0.5, 1.0)
    penalties: tuple[float, ...] = (1e-5, 1e-4, 1e-3, 1e-2, 1e-1)
    folds: int = 5

    def evidence(
        self, inner: Tensor, known: Tensor, values: Tensor, classes: int, *, seed: int
    ) -> tuple[Tensor, Tensor]:
        """Logarithm of the probability of each value over that of guessing, of all people, and of the known ones.

        From the inner products of all people's vectors, ``inner (N, N)``, and the numbers and ``values (P,)`` from 0 of
        the known people. The result is ``(N, K)``, and ``(P, K)`` of each known person from the classifier of the folds
        without it; zero for values that none of these people has.
        """
        from sklearn.model_selection import StratifiedKFold

        coordinates = in_span_of_known(inner, known)
        labels, own = values.numpy(), coordinates[known.numpy()]
        left_out = {pair: np.zeros((len(own), classes)) for pair in itertools.product(self.shrinkages, self.penalties)}
        folds = min(self.folds, int(np.bincount(labels).max()))
        splits = StratifiedKFold(folds, shuffle=True, random_state=seed).split(own, labels) if folds > 1 else ()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of values with few people, and of steps that the penalty makes needless
            for inside, outside in splits:
                for shrinkage in self.shrinkages:
                    found = self._trained(own[inside], labels[inside], own[outside], shrinkage, classes)
                    for penalty, values_found in found:
                        left_out[shrinkage, penalty][outside] = values_found
            shares = _shares(labels, classes)
            losses = {pair: _loss(found, shares, labels) for pair, found in left_out.items()}
            shrinkage, penalty = min(losses, key=lambda pair: (losses[pair], -pair[0], pair[1]))
            chosen = dataclasses.replace(self, penalties=(penalty,))
            ((_, of_all),) = chosen._trained(own, labels, coordinates, shrinkage, classes)
        return torch.from_numpy(of_all), torch.from_numpy(left_out[shrinkage, penalty])

    def _trained(
        self, own: Floats, labels: Ints, asked: Floats, shrinkage: float, classes: int
    ) -> list[tuple[float, Floats]]:
        """By penalty, the evidence ``(M, K)`` of people asked for, from known ones ``(P, R)``."""
        from sklearn.linear_model import LogisticRegression

        found = np.zeros((len(asked), classes))
        if len(np.unique(labels)) < 2 or own.shape[1] == 0:  # as in layers that do not move, such as A of new adapters
            return [(penalty, found) for penalty in self.penalties]
        shorter, shares, made = _whitening(own, labels, shrinkage), _shares(labels, classes), []
        trained, vectors = own @ shorter, asked @ shorter
        for penalty in self.penalties:
            model = LogisticRegression(C=penalty, max_iter=100).fit(trained, labels)
            logs = np.zeros((len(asked), classes))
            logs[:, model.classes_] = np.maximum(model.predict_log_proba(vectors), _FLOOR)
            logs[:, model.classes_] -= np.log(shares[model.classes_])
            made.append((penalty, logs))
        return made


def stacked(of_all: Sequence[Tensor], left_out: Sequence[Tensor], values: Tensor) -> Tensor:
    """``(N, K)`` weighted sum of evidence of several classifiers, with the weights of `stacked_weights`.

    Each gives ``(N, K)`` for all people, and ``(P, K)`` that is left out: of the known ones, from classifiers without
    them.
    """
    weights = stacked_weights(torch.stack(list(left_out)), values)
    found: Tensor = torch.tensordot(weights, torch.stack(list(of_all)), 1)
    return found


def stacked_weights(left_out: Tensor, values: Tensor, *, most: float = 1.0) -> Tensor:
    """``(B,)`` weights from 0 to `most` of the evidence of several classifiers, with the largest likelihood.

    ``left_out (B, P, K)`` is the evidence of B classifiers for known people with ``values (P,)`` that they were not
    trained on.
    """
    from scipy.optimize import minimize

    parts, labels = left_out.numpy(), values.numpy()
    prior = np.log(np.maximum(_shares(labels, parts.shape[2]), _LEAST))
    rows = np.arange(len(labels))

    def loss(weights: Floats) -> tuple[float, Floats]:
        logits = prior + np.tensordot(weights, parts, 1)
        logits = logits - logits.max(1, keepdims=True)
        chances = np.exp(logits)
        chances /= chances.sum(1, keepdims=True)
        wrong = chances.copy()
        wrong[rows, labels] -= 1
        slope = np.einsum("bpk,pk->b", parts, wrong) / len(rows)
        return float(-np.log(np.maximum(chances[rows, labels], _LEAST)).mean()), slope

    start = np.full(len(parts), most / max(len(parts), 1))
    found = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=[(0, most)] * len(parts))
    return torch.from_numpy(np.asarray(found.x))


_LEAST, _FLOOR = 1e-6, float(np.log(1e-6))
"""Least probability."""


def in_span_of_known(inner: Tensor, known: Tensor) -> Floats:
    """``(N, R)`` coordinates of all vectors in an orthonormal basis of the span of the known ones ``(P,)``."""
    weights = orthonormal_combinations(inner[known][:, known], least=_RANK)
    return np.asarray((inner[:, known] @ weights).numpy(), dtype=np.float64)


def _whitening(vectors: Floats, labels: Ints, shrinkage: float) -> Floats:
    """``(R, R)`` inverse root of the shrunk covariance within the classes of vectors ``(P, R)``."""
    within = covariance_within(torch.from_numpy(vectors), torch.from_numpy(labels))
    return np.asarray(whitening(within, kept=1 - shrinkage, added=shrinkage).numpy(), dtype=np.float64)


def _shares(labels: Ints, classes: int) -> Floats:
    """``(K,)`` share of each value."""
    return np.bincount(labels, minlength=classes) / len(labels)


def _loss(evidence: Floats, shares: Floats, labels: Ints) -> float:
    """Mean negative log-likelihood of people's values ``(P,)`` with the evidence ``(P, K)`` and shares ``(K,)``."""
    logits = evidence + np.log(np.maximum(shares, _LEAST))
    chances = np.exp(logits - logits.max(1, keepdims=True))
    own = chances[np.arange(len(labels)), labels] / chances.sum(1)
    return float(-np.log(np.maximum(own, _LEAST)).mean())
