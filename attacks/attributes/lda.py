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
from fedleak.attacks.attributes.messages import AttributeAttack, AttributePeople, cosines, products_of_rounds
from fedleak.attacks.linear_algebra import covariance_within, orthonormal_combinations, whitening
from fedleak.core.history import History
from fedleak.core.ranges import AtLeastTwo

_RANK = 1e-9
"""Share of the largest eigenvalue below which a direction is considered rounding."""


_LEAST = 1e-6
"""Least probability whose logarithm is taken."""
_FLOOR = float(np.log(_LEAST))


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

    Example:
        >>> import torch
        >>> from fedleak.attacks.attributes import AttributeLDA
        >>> from fedleak.attacks.attributes.toy import toy
        >>> view, truth = toy()
        >>> estimate = AttributeLDA()(view, generator=torch.Generator().manual_seed(0))
        >>> round(float(estimate.score(view, truth).metrics["auc"].mean()), 2)
        0.75
    """

    name = "attribute-lda"
    with_prior = "likelihood"
    quadratic = True
    cost = "`folds` times 15 logistic regressions for each round, layer and attribute"

    folds: AtLeastTwo = 5
    fewest: AtLeastTwo = 10

    def run(self, view: History, *, generator: torch.Generator) -> AttributeEstimate:
        people = AttributePeople.of(view)
        discriminant = Discriminant(folds=self.folds)
        seed = int(torch.randint(2**31 - 1, (), generator=generator))
        # Evidence of each round and layer, by attribute: of all people, and of the known ones without themselves.
        of_all: dict[str, list[torch.Tensor]] = {name: [] for name in people.values}
        of_known: dict[str, list[torch.Tensor]] = {name: [] for name in people.values}
        for pseudonyms, layers in products_of_rounds(view):
            senders = people.places(pseudonyms)
            usable = [name for name, values in people.values.items() if _enough(values[senders], self.fewest)]
            if not usable:
                continue
            for products in layers.values():
                inner = cosines(products)
                for name in usable:
                    values = people.values[name][senders]
                    classes = people.classes(name)
                    with_value = (values >= 0).nonzero().flatten()
                    evidence_of_all, evidence_left_out = discriminant.evidence(
                        inner, with_value, values[with_value], classes, seed=seed
                    )
                    # People who are not in the round have evidence of zero: it says nothing of them.
                    everyone = torch.zeros(len(people.names), classes, dtype=torch.float64)
                    everyone[senders] = evidence_of_all
                    left_out = torch.zeros(len(people.names), classes, dtype=torch.float64)
                    left_out[senders[with_value]] = evidence_left_out
                    of_all[name].append(everyone)
                    of_known[name].append(left_out)
        # The weighted sum over rounds and layers; zero without any.
        evidence = {}
        for name, values in people.values.items():
            evidence[name] = torch.zeros(len(people.names), people.classes(name), dtype=torch.float64)
            if of_all[name]:
                is_known = values >= 0
                left_out_of_known = [left_out[is_known] for left_out in of_known[name]]
                evidence[name] = stacked(of_all[name], left_out_of_known, values[is_known])
        return people.estimate(evidence)


def _enough(values: torch.Tensor, fewest: int) -> bool:
    """Whether enough of the people in a round have known values ``(V,)``, and not all the same."""
    values_of_known = values[values >= 0]
    return len(values_of_known) >= fewest and len(torch.unique(values_of_known)) > 1


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
        [Hastie09], sections 4.3.1, 7.10 and 18.3.5.
    """

    shrinkages: tuple[float, ...] = (0.1, 0.5, 1.0)
    penalties: tuple[float, ...] = (1e-5, 1e-4, 1e-3, 1e-2, 1e-1)
    folds: int = 5

    def evidence(
        self, inner: Tensor, known_rows: Tensor, values: Tensor, classes: int, *, seed: int
    ) -> tuple[Tensor, Tensor]:
        """Logarithm of the probability of each value over that of guessing, of all people, and of the known ones.

        From the inner products of all people's vectors, ``inner (N, N)``, and the numbers and ``values (P,)`` from 0 of
        the known people. The result is ``(N, K)``, and ``(P, K)`` of each known person from the classifier of the folds
        without it; zero for values that none of these people has.
        """
        from sklearn.model_selection import StratifiedKFold

        coordinates = in_span_of_known(inner, known_rows)
        labels = values.numpy()
        vectors = coordinates[known_rows.numpy()]
        candidates = list(itertools.product(self.shrinkages, self.penalties))
        left_out = {candidate: np.zeros((len(vectors), classes)) for candidate in candidates}
        # A value that one person has cannot be in two folds; with one fold, all evidence that is left out stays zero.
        folds = min(self.folds, int(np.bincount(labels).max()))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of values with few people, and of steps that the penalty makes needless
            splits = []
            if folds > 1:
                splitter = StratifiedKFold(folds, shuffle=True, random_state=seed)
                splits = list(splitter.split(vectors, labels))
            for inside, outside in splits:
                for shrinkage in self.shrinkages:
                    evidence_by_penalty = self._trained(
                        vectors[inside], labels[inside], vectors[outside], shrinkage, classes
                    )
                    for penalty, evidence in evidence_by_penalty:
                        left_out[shrinkage, penalty][outside] = evidence
            # The likeliest pair; of equal ones, the strongest shrinkage and the strongest penalty.
            shares = _shares(labels, classes)
            losses = {candidate: _loss(evidence, shares, labels) for candidate, evidence in left_out.items()}
            shrinkage, penalty = min(losses, key=lambda pair: (losses[pair], -pair[0], pair[1]))
            # Everybody's evidence is that of a classifier of all known people.
            chosen = dataclasses.replace(self, penalties=(penalty,))
            ((_, of_all),) = chosen._trained(vectors, labels, coordinates, shrinkage, classes)
        return torch.from_numpy(of_all), torch.from_numpy(left_out[shrinkage, penalty])

    def _trained(
        self, vectors: Floats, labels: Ints, queries: Floats, shrinkage: float, classes: int
    ) -> list[tuple[float, Floats]]:
        """By penalty, the evidence ``(M, K)`` of the people of ``queries (M, R)``, from known ones ``(P, R)``."""
        from sklearn.linear_model import LogisticRegression

        has_one_label = len(np.unique(labels)) < 2
        if has_one_label or vectors.shape[1] == 0:  # as in layers that do not move, such as A of new adapters
            nothing = np.zeros((len(queries), classes))
            return [(penalty, nothing) for penalty in self.penalties]
        whiten = _whitening(vectors, labels, shrinkage)
        shares = _shares(labels, classes)
        training = vectors @ whiten
        whitened_queries = queries @ whiten
        evidence_by_penalty = []
        for penalty in self.penalties:
            model = LogisticRegression(C=penalty, max_iter=100).fit(training, labels)
            # log p(value | vector) - log p(value), for the values that somebody has.
            evidence = np.zeros((len(queries), classes))
            evidence[:, model.classes_] = np.maximum(model.predict_log_proba(whitened_queries), _FLOOR)
            evidence[:, model.classes_] -= np.log(shares[model.classes_])
            evidence_by_penalty.append((penalty, evidence))
        return evidence_by_penalty


def stacked(of_all: Sequence[Tensor], left_out: Sequence[Tensor], values: Tensor) -> Tensor:
    """``(N, K)`` weighted sum of evidence of several classifiers, with the weights of `stacked_weights`.

    Each gives ``(N, K)`` for all people, and ``(P, K)`` that is left out: of the known ones, from classifiers without
    them.
    """
    weights = stacked_weights(torch.stack(list(left_out)), values)
    evidence: Tensor = torch.tensordot(weights, torch.stack(list(of_all)), 1)
    return evidence


def stacked_weights(left_out: Tensor, values: Tensor, *, most: float = 1.0) -> Tensor:
    """``(B,)`` weights from 0 to `most` of the evidence of several classifiers, with the largest likelihood.

    ``left_out (B, P, K)`` is the evidence of B classifiers for known people with ``values (P,)`` that they were not
    trained on.
    """
    from scipy.optimize import minimize

    evidence = left_out.numpy()
    labels = values.numpy()
    log_prior = np.log(np.maximum(_shares(labels, evidence.shape[2]), _LEAST))
    rows = np.arange(len(labels))

    def loss(weights: Floats) -> tuple[float, Floats]:
        """Mean negative log-likelihood of ``softmax(log prior + sum_b w_b evidence_b)``, and its gradient."""
        logits = log_prior + np.tensordot(weights, evidence, 1)
        logits = logits - logits.max(1, keepdims=True)
        probabilities = np.exp(logits)
        probabilities /= probabilities.sum(1, keepdims=True)
        # The gradient by a logit is p - y.
        error = probabilities.copy()
        error[rows, labels] -= 1
        gradient = np.einsum("bpk,pk->b", evidence, error) / len(rows)
        return float(-np.log(np.maximum(probabilities[rows, labels], _LEAST)).mean()), gradient

    # From equal weights of sum `most`; the problem is convex.
    classifiers = len(evidence)
    start = np.full(classifiers, most / max(classifiers, 1))
    solution = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=[(0, most)] * classifiers)
    return torch.from_numpy(np.asarray(solution.x))


def in_span_of_known(inner: Tensor, known_rows: Tensor) -> Floats:
    """``(N, R)`` coordinates of all vectors in an orthonormal basis of the span of the known ones ``(P,)``."""
    weights = orthonormal_combinations(inner[known_rows][:, known_rows], least=_RANK)
    return np.asarray((inner[:, known_rows] @ weights).numpy(), dtype=np.float64)


def _whitening(vectors: Floats, labels: Ints, shrinkage: float) -> Floats:
    """``(R, R)`` inverse root of the shrunk covariance within the classes of vectors ``(P, R)``."""
    within = covariance_within(torch.from_numpy(vectors), torch.from_numpy(labels))
    return np.asarray(whitening(within, factor=1 - shrinkage, added=shrinkage).numpy(), dtype=np.float64)


def _shares(labels: Ints, classes: int) -> Floats:
    """``(K,)`` share of each value."""
    return np.bincount(labels, minlength=classes) / len(labels)


def _loss(evidence: Floats, shares: Floats, labels: Ints) -> float:
    """Mean negative log-likelihood of people's values ``(P,)`` with the evidence ``(P, K)`` and shares ``(K,)``."""
    logits = evidence + np.log(np.maximum(shares, _LEAST))
    odds = np.exp(logits - logits.max(1, keepdims=True))
    of_true_value = odds[np.arange(len(labels)), labels] / odds.sum(1)
    return float(-np.log(np.maximum(of_true_value, _LEAST)).mean())
