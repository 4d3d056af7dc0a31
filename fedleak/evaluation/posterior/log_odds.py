"""Log odds of answers given evidence and priors: additive logistic regression, fitted on other people."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd
import torch
from torch import Tensor

FOLDS = 5
_MOST_ROWS = 2**16
"""Rows on which one fit is made; more are drawn at random."""
_QUANTILES = (0.1, 0.5, 0.9)
"""Quantiles of the scores of right and of wrong answers at which the log odds may bend."""
_PENALTY = 1.0
"""Weight of half the sum of squared coefficients against the log-likelihood in nats."""
_SURE = 16.0
"""Largest log odds of a yes-or-no answer: nobody is surer than one in nine million."""
_CERTAIN = 50.0
"""Log-likelihood ratio, in nats, above which an answer is as good as certain."""
_STEPS = 40
_NONE = torch.zeros(0, dtype=torch.float64)


@dataclass(frozen=True)
class Column:
    """Evidence or a prior: scores ``(N,)``, and whether the log odds are linear in them, as in likelihood ratios."""

    scores: Tensor
    linear: bool = False


@dataclass(frozen=True)
class _Curve:
    """Continuous piecewise linear functions of a score ``(N,)``, on a scale of mean 0 and deviation 1.

    Scores in which the log odds are linear keep their scale, and have no bends. Of others only the order counts: they
    become normal quantiles of their ranks among the training scores, as they may span many orders of magnitude.

    Attributes:
        ordered: training scores in ascending order, None for scores that keep their scale.
        centre, scale: mean and deviation of the scores, or of their quantiles.
        low, high: range to which scores that keep their scale are cut, three times as wide as that of the training.
        knots: places of the bends.
    """

    ordered: Tensor | None
    centre: float
    scale: float
    low: float
    high: float
    knots: Tensor

    @classmethod
    def of(cls, scores: Tensor, labels: Tensor, linear: bool) -> "_Curve":
        least, most = (float(end) for end in scores.aminmax())
        plain = cls(None if linear else scores.sort().values, 0.0, 1.0, 2 * least - most, 2 * most - least, _NONE)
        own = plain._scaled(scores)
        low, high = torch.quantile(_few(own), torch.tensor([0.005, 0.995], dtype=torch.float64)).tolist()
        inner = own.clamp(low, high)
        centre, scale = float(inner.mean()), float(inner.std(correction=0))
        scale = scale if scale > 0 else 1.0
        levels = torch.tensor(_QUANTILES, dtype=torch.float64)
        found = torch.cat([torch.quantile(_few(inner[kind]), levels) for kind in (labels, ~labels)])
        knots = torch.unique(((found - centre) / scale * 20).round() / 20)  # those nearer than that are one
        return dataclasses.replace(plain, centre=centre, scale=scale, knots=_NONE if linear else knots)

    def _scaled(self, scores: Tensor) -> Tensor:
        if self.ordered is None:
            return (scores.clamp(self.low, self.high) - self.centre) / self.scale
        below, not_above = (torch.searchsorted(self.ordered, scores.contiguous(), right=r) for r in (False, True))
        share = (below + not_above + 1) / (2 * len(self.ordered) + 2)
        quantiles: Tensor = torch.special.ndtri(share.double())
        return (quantiles - self.centre) / self.scale

    def __call__(self, scores: Tensor) -> Tensor:
        """``(N, 1 + knots)``."""
        z = self._scaled(scores)
        return torch.cat([z[:, None], (z[:, None] - self.knots).clamp(min=0)], dim=1)


def _few(values: Tensor) -> Tensor:
    """Every n-th value, so that quantiles are of as many as torch allows."""
    return values[:: max(1, -(-len(values) // 2**20))]


def cross_fitted(
    columns: Sequence[Column],
    labels: Tensor,
    people: Tensor,
    questions: Tensor | None,
    *,
    known: Tensor,
    generator: torch.Generator,
) -> Tensor:
    """``(N,)`` log odds of each row if rows are yes-or-no questions, else its log-probability among the answers.

    The log odds are a sum of piecewise linear functions, one of each column, which bend at quantiles of the scores of
    right and of wrong answers; coefficients are those of `_fitted` (logistic regression, conditional on the question
    where one answer of several is true). People are divided into five groups (`folds_of`), and a group's
    log odds are fitted on the others, so that nobody's answers calibrate its own.

    Args:
        columns: evidence and priors; none for the share of right answers alone.
        labels: ``(N,)`` bool.
        people: ``(N,)`` number of the person whom the row is about.
        questions: ``(N,)`` number of the row's question, if one answer of each is true; None for yes-or-no questions.
        known: ``(N,)`` bool, the rows of which `labels` says what is true; the others calibrate nothing.
        generator: source of the groups, and of the rows where there are many.

    References:
        Hastie and Tibshirani, "Generalized Additive Models", Statistical Science, 1986; McFadden, "Conditional logit
        analysis of qualitative choice behavior", 1974; Liang and Zeger, "Longitudinal data analysis using generalized
        linear models", Biometrika, 1986; James and Stein, "Estimation with Quadratic Loss", 1961.
    """
    fold = folds_of(people, generator, labels & known)
    group = None if questions is None else torch.unique(questions, return_inverse=True)[1]
    columns = [Column(_compressed(one.scores, group), linear=True) if one.linear else one for one in columns]
    found = torch.zeros(len(labels), dtype=torch.float64)
    for number in torch.unique(fold).tolist():
        inside = fold == number
        train = _drawn((~inside & known).nonzero().flatten(), group, generator)
        if not (bool(labels[train].any()) and bool((~labels[train]).any())):
            continue  # the other people's answers are all right, or all wrong: nothing can be learned
        rows = torch.cat([train, inside.nonzero().flatten()])
        ones = torch.ones(len(rows), 0 if group is not None else 1, dtype=torch.float64)
        curves = [_Curve.of(column.scores[train], labels[train], column.linear) for column in columns]
        parts = [curve(column.scores[rows]) for curve, column in zip(curves, columns, strict=True)]
        design = torch.cat([ones, *(part - part[: len(train)].mean(0) for part in parts)], dim=1)
        own = None if group is None else torch.unique(group[train], return_inverse=True)[1]
        sizes = [ones.shape[1], *(part.shape[1] for part in parts)]
        weights = _fitted(_Rows(design[: len(train)], labels[train].double(), own, people[train]), sizes)
        found[inside] = design[len(train) :] @ weights
    if group is None:
        return _SURE * torch.tanh(found / _SURE)  # the same order
    return found - _log_sum(found, group)[group]


def folds_of(people: Tensor, generator: torch.Generator, labels: Tensor | None = None) -> Tensor:
    """``(N,)`` number of the group of each row's person; at most five groups of people, drawn at random.

    With the rows' labels ``(N,)``, people of whom the same rows are true are spread evenly over the groups: a person
    who is left out would otherwise make its own answer rarer among the others, which speaks against it.

    References:
        Kohavi, "A study of cross-validation and bootstrap for accuracy estimation and model selection", IJCAI 1995.
    """
    names, person = torch.unique(people, return_inverse=True)
    drawn = torch.randperm(len(names), generator=generator)
    if labels is not None and len(names):
        frame = pd.DataFrame({"person": person.numpy(), "true": labels.numpy()})
        frame["row"] = frame.groupby("person").cumcount()
        answers = frame[frame["true"]].groupby("person")["row"].agg(tuple).reindex(range(len(names)))
        kind = torch.from_numpy(answers.factorize()[0]) + 1  # 0 for nothing true
        first = torch.full((len(names) + 1,), len(names)).scatter_reduce(0, kind, drawn, "amin")[kind]
        drawn = (first * len(names) + drawn).argsort().argsort()
    return (drawn % min(FOLDS, max(len(names), 1)))[person]


def _drawn(rows: Tensor, group: Tensor | None, generator: torch.Generator) -> Tensor:
    """At most `_MOST_ROWS` of the rows, all or none of a question."""
    if len(rows) <= _MOST_ROWS:
        return rows
    if group is None:
        return rows[torch.randperm(len(rows), generator=generator)[:_MOST_ROWS]]
    asked = torch.unique(group[rows])
    share = _MOST_ROWS / len(rows)
    chosen = asked[torch.rand(len(asked), generator=generator) < share]
    return rows[torch.isin(group[rows], chosen)]


def _compressed(scores: Tensor, group: Tensor | None) -> Tensor:
    """Log-likelihood ratios ``(N,)`` of which what is beyond `_CERTAIN` counts by its logarithm.

    Those of exact attacks differ by orders of magnitude from person to person, and one weight for all would leave those
    of most people at zero. Of several answers to a question, ratios are those to the likeliest.
    """
    if group is not None:
        highest = torch.full((int(group.max()) + 1,), -torch.inf, dtype=scores.dtype)
        scores = scores - highest.scatter_reduce(0, group, scores, "amax")[group]
    beyond = (scores.abs() - _CERTAIN).clamp(min=0)
    compressed: Tensor = scores.sign() * (scores.abs().clamp(max=_CERTAIN) + beyond.log1p())
    return compressed


def _log_sum(values: Tensor, group: Tensor) -> Tensor:
    """``(G,)`` logarithm of the sum of exponentials of the values ``(N,)`` of each group."""
    groups = int(group.max()) + 1 if len(group) else 0
    highest = torch.full((groups,), -torch.inf, dtype=values.dtype).scatter_reduce(0, group, values, "amax")
    sums = torch.zeros(groups, dtype=values.dtype).index_add_(0, group, (values - highest[group]).exp())
    return highest + sums.log()


@dataclass(frozen=True)
class _Rows:
    """Rows that weights are fitted to: design ``(N, F)``, and labels, questions (or None) and people, ``(N,)`` each."""

    design: Tensor
    labels: Tensor
    group: Tensor | None
    people: Tensor

    def likelihood(self, weights: Tensor) -> Tensor:
        """Log-likelihood of weights ``(F,)``."""
        odds = self.design @ weights
        if self.group is None:
            return torch.nn.functional.logsigmoid(odds * (2 * self.labels - 1)).sum()
        return (self.labels * (odds - _log_sum(odds, self.group)[self.group])).sum()

    def derivatives(self, weights: Tensor) -> tuple[Tensor, Tensor]:
        """Rows ``(N, F)`` whose sum is the slope of the log-likelihood, and its curvature ``(F, F)``."""
        odds = self.design @ weights
        if self.group is None:
            chance = torch.sigmoid(odds)
            curvature = self.design.T @ (self.design * (chance * (1 - chance))[:, None])
        else:
            chance = (odds - _log_sum(odds, self.group)[self.group]).exp()
            weighted = self.design * chance[:, None]
            means = torch.zeros(int(self.group.max()) + 1, self.design.shape[1], dtype=torch.float64)
            means = means.index_add_(0, self.group, weighted)
            curvature = self.design.T @ weighted - means.T @ means
        return self.design * (self.labels - chance)[:, None], curvature

    def of_people(self, rows: Tensor) -> Tensor:
        """``(P, F)`` sums of rows ``(N, F)`` by person."""
        names, person = torch.unique(self.people, return_inverse=True)
        return torch.zeros(len(names), rows.shape[1], dtype=rows.dtype).index_add_(0, person, rows)


def _solved(matrix: Tensor, right: Tensor) -> Tensor:
    """Solution of a symmetric system; the shortest one of least squares where columns differ by many magnitudes."""
    found: Tensor
    found, singular = torch.linalg.solve_ex(matrix, right)
    return torch.linalg.pinv(matrix, hermitian=True) @ right if bool(singular) else found


def _fitted(rows: _Rows, sizes: Sequence[int]) -> Tensor:
    """Weights ``(F,)`` of largest penalised likelihood, those of each column drawn towards 0 by their uncertainty.

    The answers of one person depend on one another, so the covariance V of the weights is that of people (the sandwich
    of Liang and Zeger). The weights w of a column, whose rows have the mean square G, are multiplied with ``max(0, 1 -
    tr(V G) / w' G w)`` (James and Stein), so that evidence or a prior that says nothing adds nothing.

    Args:
        rows: what they are fitted to.
        sizes: number of weights of the intercept, and of each column.
    """
    penalty = torch.full((sum(sizes),), _PENALTY, dtype=torch.float64)
    penalty[: sizes[0]] = 1e-6
    weights = torch.zeros(len(penalty), dtype=torch.float64)
    if not len(penalty):
        return weights

    def value_of(point: Tensor) -> float:
        return float(rows.likelihood(point) - (penalty * point.square()).sum() / 2)

    value = value_of(weights)
    for _ in range(_STEPS):
        slopes, curvature = rows.derivatives(weights)
        step = _solved(curvature + penalty.diag(), slopes.sum(0) - penalty * weights)
        size, before = 1.0, value
        while (value := value_of(weights + size * step)) < before and size > 1e-6:
            size /= 2
        if value <= before + 1e-9 * (1 + abs(before)):
            break
        weights = weights + size * step
    slopes, curvature = rows.derivatives(weights)
    apart = _solved(curvature + penalty.diag(), rows.of_people(slopes).T)
    people = apart.shape[1]
    start = sizes[0]
    for size in sizes[1:]:
        own = slice(start, start := start + size)
        squares = rows.design[:, own].T @ rows.design[:, own]
        noise = float((apart[own] * (squares @ apart[own])).sum()) * people / max(people - 1, 1)
        signal = float(weights[own] @ squares @ weights[own])
        weights[own] *= max(1 - noise / max(signal, 1e-300), 0.0)
    return weights
