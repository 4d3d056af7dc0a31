"""Log odds of answers given evidence and priors: additive logistic regression, fitted on other people."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd
import torch
from torch import Tensor

FOLDS = 5
"""Groups of people; the log odds of each are fitted on the other groups."""
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
"""Most steps of Newton's method."""
_NONE = torch.zeros(0, dtype=torch.float64)


@dataclass(frozen=True)
class Evidence:
    """Evidence or a prior: scores ``(N,)``, and whether the log odds are linear in them, as in likelihood ratios."""

    scores: Tensor
    linear: bool = False


@dataclass(frozen=True)
class _BentScore:
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
    def of(cls, scores: Tensor, labels: Tensor, linear: bool) -> "_BentScore":
        least, most = (float(end) for end in scores.aminmax())
        unscaled = cls(
            ordered=None if linear else scores.sort().values,
            centre=0.0,
            scale=1.0,
            low=2 * least - most,
            high=2 * most - least,
            knots=_NONE,
        )
        scaled = unscaled._scaled(scores)
        # Mean and deviation without the outermost percent.
        ends = torch.tensor([0.005, 0.995], dtype=torch.float64)
        low, high = torch.quantile(_few(scaled), ends).tolist()
        inner = scaled.clamp(low, high)
        centre = float(inner.mean())
        scale = float(inner.std(correction=0))
        scale = scale if scale > 0 else 1.0
        # The log odds may bend at quantiles of the right and of the wrong answers.
        levels = torch.tensor(_QUANTILES, dtype=torch.float64)
        quantiles = torch.cat([torch.quantile(_few(inner[kind]), levels) for kind in (labels, ~labels)])
        # Bends that are nearer than a twentieth of the deviation are one.
        knots = torch.unique(((quantiles - centre) / scale * 20).round() / 20)
        return dataclasses.replace(unscaled, centre=centre, scale=scale, knots=_NONE if linear else knots)

    def _scaled(self, scores: Tensor) -> Tensor:
        if self.ordered is None:
            in_range = scores.clamp(self.low, self.high)
            return (in_range - self.centre) / self.scale
        # Mid-rank among the training scores, strictly between 0 and 1, so that its normal quantile is finite.
        values = scores.contiguous()
        below = torch.searchsorted(self.ordered, values, right=False)
        not_above = torch.searchsorted(self.ordered, values, right=True)
        share = (below + not_above + 1) / (2 * len(self.ordered) + 2)
        quantiles: Tensor = torch.special.ndtri(share.double())
        return (quantiles - self.centre) / self.scale

    def __call__(self, scores: Tensor) -> Tensor:
        """``(N, 1 + knots)``."""
        # The score z, and max(z - knot, 0) for each bend.
        z = self._scaled(scores)
        return torch.cat([z[:, None], (z[:, None] - self.knots).clamp(min=0)], dim=1)


def _few(values: Tensor) -> Tensor:
    """Every n-th value, so that quantiles are of as many as torch allows."""
    return values[:: max(1, -(-len(values) // 2**20))]


def cross_fitted(
    evidence: Sequence[Evidence],
    labels: Tensor,
    people: Tensor,
    questions: Tensor | None,
    *,
    labelled: Tensor,
    generator: torch.Generator,
) -> Tensor:
    """``(N,)`` log odds of each row if rows are yes-or-no questions, else its log-probability among the answers.

    The log odds are a sum of piecewise linear functions, one of each column, which bend at quantiles of the scores of
    right and of wrong answers; coefficients are those of `_fitted` (logistic regression, conditional on the question
    where one answer of several is true). People are divided into five groups (`folds_of`), and a group's
    log odds are fitted on the others, so that nobody's answers calibrate its own.

    Args:
        evidence: evidence and priors; none for the share of right answers alone.
        labels: ``(N,)`` bool.
        people: ``(N,)`` number of the person whom the row is about.
        questions: ``(N,)`` number of the row's question, if one answer of each is true; None for yes-or-no questions.
        labelled: ``(N,)`` bool, the rows of which `labels` says what is true; the others calibrate nothing.
        generator: source of the groups, and of the rows where there are many.

    References:
        [Hastie86]; [McFadden74]; [Liang86]; [James61].
    """
    fold = folds_of(people, generator, labels & labelled)
    group = None
    if questions is not None:
        group = torch.unique(questions, return_inverse=True)[1]
    columns = []
    for column in evidence:
        if column.linear:
            column = Evidence(_compressed(column.scores, group), linear=True)
        columns.append(column)
    log_odds = torch.zeros(len(labels), dtype=torch.float64)
    for number in torch.unique(fold).tolist():
        inside = fold == number
        train = _drawn((~inside & labelled).nonzero().flatten(), group, generator)
        # Where the other people's answers are all right, or all wrong, nothing can be learned.
        if not (bool(labels[train].any()) and bool((~labels[train]).any())):
            continue
        rows = torch.cat([train, inside.nonzero().flatten()])
        # Of the answers to one question only differences count, so there is no intercept.
        intercepts = 0 if group is not None else 1
        intercept = torch.ones(len(rows), intercepts, dtype=torch.float64)
        blocks = [intercept]
        sizes = [intercept.shape[1]]
        for column in columns:
            curve = _BentScore.of(column.scores[train], labels[train], column.linear)
            block = curve(column.scores[rows])
            blocks.append(block - block[: len(train)].mean(0))
            sizes.append(block.shape[1])
        design = torch.cat(blocks, dim=1)
        train_group = None
        if group is not None:
            train_group = torch.unique(group[train], return_inverse=True)[1]
        train_rows = _FitRows(design[: len(train)], labels[train].double(), train_group, people[train])
        weights = _fitted(train_rows, sizes)
        log_odds[inside] = design[len(train) :] @ weights
    if group is None:
        # Bounded, in the same order.
        return _SURE * torch.tanh(log_odds / _SURE)
    # Log-probabilities of the answers to one question: their exponentials sum to 1.
    return log_odds - _log_sum(log_odds, group)[group]


def folds_of(people: Tensor, generator: torch.Generator, labels: Tensor | None = None) -> Tensor:
    """``(N,)`` number of the group of each row's person; at most five groups of people, drawn at random.

    With the rows' labels ``(N,)``, people of whom the same rows are true are spread evenly over the groups: a person
    who is left out would otherwise make its own answer rarer among the others, which speaks against it.

    References:
        [Kohavi95].
    """
    names, person = torch.unique(people, return_inverse=True)
    count = len(names)
    # A random order of the people; the groups are dealt out in turn.
    order = torch.randperm(count, generator=generator)
    if labels is not None and count:
        # Kind of each person: which of its rows are true, 0 for none.
        frame = pd.DataFrame({"person": person.numpy(), "true": labels.numpy()})
        frame["row"] = frame.groupby("person").cumcount()
        true_rows = frame[frame["true"]].groupby("person")["row"].agg(tuple)
        kinds = true_rows.reindex(range(count)).factorize()[0]
        kind = torch.from_numpy(kinds) + 1
        # People of a kind follow one another, kinds in the order of their first person.
        latest = torch.full((count + 1,), count)
        first = latest.scatter_reduce(0, kind, order, "amin")[kind]
        order = (first * count + order).argsort().argsort()
    groups = min(FOLDS, max(count, 1))
    return (order % groups)[person]


def _drawn(rows: Tensor, group: Tensor | None, generator: torch.Generator) -> Tensor:
    """At most `_MOST_ROWS` of the rows, all or none of a question."""
    if len(rows) <= _MOST_ROWS:
        return rows
    if group is None:
        return rows[torch.randperm(len(rows), generator=generator)[:_MOST_ROWS]]
    questions = torch.unique(group[rows])
    share = _MOST_ROWS / len(rows)
    chosen = questions[torch.rand(len(questions), generator=generator) < share]
    return rows[torch.isin(group[rows], chosen)]


def _compressed(scores: Tensor, group: Tensor | None) -> Tensor:
    """Log-likelihood ratios ``(N,)`` of which what is beyond `_CERTAIN` counts by its logarithm.

    Those of exact attacks differ by orders of magnitude from person to person, and one weight for all would leave those
    of most people at zero. Of several answers to a question, ratios are those to the likeliest.
    """
    if group is not None:
        nothing = torch.full((int(group.max()) + 1,), -torch.inf, dtype=scores.dtype)
        highest = nothing.scatter_reduce(0, group, scores, "amax")
        scores = scores - highest[group]
    # |r| up to _CERTAIN stays, and |r| above it becomes _CERTAIN + log(1 + |r| - _CERTAIN).
    size = scores.abs()
    beyond = (size - _CERTAIN).clamp(min=0)
    compressed: Tensor = scores.sign() * (size.clamp(max=_CERTAIN) + beyond.log1p())
    return compressed


def _log_sum(values: Tensor, group: Tensor) -> Tensor:
    """``(G,)`` logarithm of the sum of exponentials of the values ``(N,)`` of each group."""
    groups = int(group.max()) + 1 if len(group) else 0
    # Relative to the largest of each group, so that nothing overflows.
    nothing = torch.full((groups,), -torch.inf, dtype=values.dtype)
    highest = nothing.scatter_reduce(0, group, values, "amax")
    relative = (values - highest[group]).exp()
    sums = torch.zeros(groups, dtype=values.dtype).index_add_(0, group, relative)
    return highest + sums.log()


@dataclass(frozen=True)
class _FitRows:
    """Rows that weights are fitted to: design ``(N, F)``, and labels, questions (or None) and people, ``(N,)`` each."""

    design: Tensor
    labels: Tensor
    group: Tensor | None
    people: Tensor

    def likelihood(self, weights: Tensor) -> Tensor:
        """Log-likelihood of weights ``(F,)``."""
        odds = self.design @ weights
        if self.group is None:
            # sum of log sigmoid(+-odds)
            return torch.nn.functional.logsigmoid(odds * (2 * self.labels - 1)).sum()
        # sum of odds - log sum exp(odds of the question) over the true answers
        return (self.labels * (odds - _log_sum(odds, self.group)[self.group])).sum()

    def derivatives(self, weights: Tensor) -> tuple[Tensor, Tensor]:
        """Rows ``(N, F)`` whose sum is the slope of the log-likelihood, and its curvature ``(F, F)``."""
        odds = self.design @ weights
        if self.group is None:
            # X' diag(p (1 - p)) X
            chance = torch.sigmoid(odds)
            variance = chance * (1 - chance)
            curvature = self.design.T @ (self.design * variance[:, None])
        else:
            # X' diag(p) X minus the outer products of each question's mean row under p.
            log_sums = _log_sum(odds, self.group)
            chance = (odds - log_sums[self.group]).exp()
            weighted = self.design * chance[:, None]
            means = torch.zeros(len(log_sums), self.design.shape[1], dtype=torch.float64)
            means = means.index_add_(0, self.group, weighted)
            curvature = self.design.T @ weighted - means.T @ means
        # Slope of each row: x (y - p).
        slopes = self.design * (self.labels - chance)[:, None]
        return slopes, curvature

    def of_people(self, rows: Tensor) -> Tensor:
        """``(P, F)`` sums of rows ``(N, F)`` by person."""
        names, person = torch.unique(self.people, return_inverse=True)
        return torch.zeros(len(names), rows.shape[1], dtype=rows.dtype).index_add_(0, person, rows)


def _solved(matrix: Tensor, right_side: Tensor) -> Tensor:
    """Solution of a symmetric system; the shortest one of least squares where columns differ by many magnitudes."""
    solution: Tensor
    solution, singular = torch.linalg.solve_ex(matrix, right_side)
    if bool(singular):
        solution = torch.linalg.pinv(matrix, hermitian=True) @ right_side
    return solution


def _fitted(rows: _FitRows, sizes: Sequence[int]) -> Tensor:
    """Weights ``(F,)`` of largest penalised likelihood, those of each column drawn towards 0 by their uncertainty.

    The answers of one person depend on one another, so the covariance V of the weights is that of people (the sandwich
    of Liang and Zeger). The weights w of a column, whose rows have the mean square G, are multiplied with ``max(0, 1 -
    tr(V G) / w' G w)`` (James and Stein), so that evidence or a prior that says nothing adds nothing.

    Args:
        rows: what they are fitted to.
        sizes: number of weights of the intercept, and of each column.
    """
    # The intercept is nearly free; the small penalty keeps it finite where one kind of answer is rare.
    penalty = torch.full((sum(sizes),), _PENALTY, dtype=torch.float64)
    penalty[: sizes[0]] = 1e-6
    weights = torch.zeros(len(penalty), dtype=torch.float64)
    if not len(penalty):
        return weights

    def penalised(weights: Tensor) -> float:
        return float(rows.likelihood(weights) - (penalty * weights.square()).sum() / 2)

    # Newton's method; a step that makes the value smaller is halved.
    best = penalised(weights)
    for _ in range(_STEPS):
        slopes, curvature = rows.derivatives(weights)
        step = _solved(curvature + penalty.diag(), slopes.sum(0) - penalty * weights)
        size = 1.0
        before = best
        while (best := penalised(weights + size * step)) < before and size > 1e-6:
            size /= 2
        if best <= before + 1e-9 * (1 + abs(before)):
            break
        weights = weights + size * step
    # What each person moves the weights by; V is the sum of the squares (the sandwich), times P / (P - 1).
    slopes, curvature = rows.derivatives(weights)
    influences = _solved(curvature + penalty.diag(), rows.of_people(slopes).T)
    people = influences.shape[1]
    # The weights of each column are multiplied with max(0, 1 - tr(V G) / w' G w).
    start = sizes[0]
    for width in sizes[1:]:
        of_column = slice(start, start + width)
        start += width
        squares = rows.design[:, of_column].T @ rows.design[:, of_column]
        noise = float((influences[of_column] * (squares @ influences[of_column])).sum()) * people / max(people - 1, 1)
        signal = float(weights[of_column] @ squares @ weights[of_column])
        weights[of_column] *= max(1 - noise / max(signal, 1e-300), 0.0)
    return weights
