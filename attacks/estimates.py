"""Estimates: what attacks return. Each checks itself against the view and scores itself against the ground truth."""

import abc
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor

from attacks.metrics import (
    auc_per_victim,
    average_precision,
    composition_errors,
    f1_per_victim,
    null_class_errors,
    precision_at_positives,
    random_average_precision,
    roc_per_victim,
    top_share,
    wins_over_negatives,
)
from protocol.metrics import METRICS, Metric, add_metric
from protocol.view import ITEM_EMBEDDING, ServerView, ViewError

UNSEEN = -1
"""In place of a user's number: somebody of whom the adversary knows nothing."""
ROC_GRID = torch.linspace(0, 1, 101)
"""False-positive rates at which mean ROC curves are drawn."""
_ROUNDING = 1e-6
"""Of float32 shares, e.g. of a client of one class."""
_SUM_TOLERANCE = 1e-4
"""Rounding of proportions in float32."""


class EstimateError(Exception):
    """An attack returned something of another type or shape than it promised: a defect of the attack."""


@dataclass(frozen=True)
class Scores:
    """The worth of an estimate, one value per victim and metric.

    Attributes:
        metrics: by name of the metric ``(V,)``; NaN where it is not defined for a victim.
        items: ``(V,)`` size of the question about each victim, e.g. the number of its items; 0 if left out.
        positives: ``(V,)`` how many of them are true; 0 if left out.
        units: ``(U,)`` numbers of the people, where scores are of users and not of the view's victims; then every
            ``(V,)`` here is ``(U,)``.
        influences: by metric ``(U,)`` what stands for a person where an interval is drawn, because its part in others'
            values belongs to it; the mean is the same.
        roc: ``(K, G)`` true-positive rates at `ROC_GRID` of the victims that have one.
        profiles: ``(V, K, 4)`` true share, inferred share and both ends of its interval, of every class.
    """

    metrics: Mapping[str, Tensor]
    items: Tensor | None = None
    positives: Tensor | None = None
    units: Tensor | None = None
    influences: Mapping[str, Tensor] = field(default_factory=dict)
    roc: Tensor | None = None
    profiles: Tensor | None = None


@dataclass(frozen=True, kw_only=True)
class Estimate(abc.ABC):
    """What an attack infers about the victims of one view, in the view's order.

    A subclass is a frozen dataclass of tensors with the two class attributes and the two methods below.

    Attributes:
        truth: names of the recorded ground truth that `score` needs.
        metrics: what `score` returns; names of the table `protocol.metrics.METRICS`, or new entries for it.
    """

    truth: ClassVar[tuple[str, ...]]
    metrics: ClassVar[tuple[str | Metric, ...]]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for metric in cls.__dict__.get("metrics", ()):
            if isinstance(metric, Metric):
                add_metric(metric)
            elif metric not in METRICS:
                raise TypeError(f"{cls.__name__}: {metric!r} is not in the table of metrics; give a Metric for it")

    @classmethod
    def metric_names(cls) -> tuple[str, ...]:
        """Names of its metrics."""
        return tuple(metric.name if isinstance(metric, Metric) else metric for metric in cls.metrics)

    @abc.abstractmethod
    def check(self, view: ServerView) -> None:
        """Raises `EstimateError` unless every tensor has the shape that `view` demands and is finite."""

    @abc.abstractmethod
    def score(self, view: ServerView, truth: Mapping[str, Tensor]) -> Scores:
        """Scores the estimate.

        Args:
            view: what the attack was given.
            truth: ground truth of the same victims by name, ``(V, ...)`` each; see
                `datamodules.recordings.recording.Recording.truth`.
        """


def check_tensor(name: str, tensor: Tensor, shape: tuple[int, ...], *, dtype: torch.dtype | None = None) -> None:
    """Checks a field of an estimate.

    Args:
        name: of the field.
        tensor: its value.
        shape: that it must have.
        dtype: that it must have; None for any type of finite numbers.

    Raises:
        EstimateError: it has another shape or type, or holds NaN or infinity.
    """
    if not isinstance(tensor, Tensor) or tensor.shape != shape:
        found = tuple(tensor.shape) if isinstance(tensor, Tensor) else type(tensor).__name__
        raise EstimateError(f"{name}: expected shape {shape}, got {found}")
    if dtype is not None and tensor.dtype != dtype:
        raise EstimateError(f"{name}: expected {dtype}, got {tensor.dtype}")
    if dtype is None and not bool(torch.isfinite(tensor).all()):
        raise EstimateError(f"{name}: expected finite numbers")


@dataclass(frozen=True, kw_only=True)
class InteractionEstimate(Estimate):
    """Which of the served items a client interacted with.

    Attributes:
        scores: ``(V, R)``, higher means more likely interacted; ignored where padded.
        decisions: ``(V, R)`` bool, the attack's own decision (threshold found without the truth), False where padded.
    """

    truth = ("labels",)
    metrics = ("auc", "f1")
    scores: Tensor
    decisions: Tensor

    def check(self, view: ServerView) -> None:
        mask = view.served_mask
        check_tensor("decisions", self.decisions, tuple(mask.shape), dtype=torch.bool)
        check_tensor("scores", self.scores, tuple(mask.shape), dtype=self.scores.dtype)
        check_tensor("scores of served items", self.scores[mask], (int(mask.sum()),))

    def score(self, view: ServerView, truth: Mapping[str, Tensor]) -> Scores:
        """AUC of the scores and F1 of the decisions over each victim's served items."""
        mask = view.served_mask
        labels = truth["labels"][:, : mask.shape[1]]
        auc = auc_per_victim(self.scores, labels, mask)
        metrics = {"auc": auc, "f1": f1_per_victim(self.decisions, labels, mask)}
        roc = roc_per_victim(self.scores, labels, mask, ROC_GRID)[~auc.isnan()]
        return Scores(metrics, mask.sum(1), ((labels > 0.5) & mask).sum(1), roc=roc)


@dataclass(frozen=True, kw_only=True)
class VectorEstimate(Estimate):
    """The private vector of each client, up to a positive factor.

    Attributes:
        vectors: ``(V, d)``, of the length of an item vector.
    """

    truth = ("user_vector", "labels")
    metrics = ("error", "success", "label-error", "cosine", "flipped")
    vectors: Tensor

    def check(self, view: ServerView) -> None:
        check_tensor("vectors", self.vectors, (view.victims, view.deltas[ITEM_EMBEDDING].shape[-1]))

    def score(self, view: ServerView, truth: Mapping[str, Tensor]) -> Scores:
        """How well the vectors predict as the clients' own do (London 2020, Definition 1, Proposition 1).

        ``error`` is the share of the catalogue on which ``sgn(u.v)`` differs, ``label-error`` the share of the client's
        labelled items on which the estimate contradicts the label, ``cosine`` that with the client's vector,
        ``flipped`` 1 where it is negative. ``success``, which needs the tolerance of a table or a training, is added to
        these by `evaluation.runner.successes`.
        """
        table, mask = view.model[ITEM_EMBEDDING].double(), view.served_mask
        guess, own = self.vectors.double(), truth["user_vector"].double()
        error = ((guess @ table.T).sign() != (own @ table.T).sign()).double().mean(1)
        labels = truth["labels"][:, : mask.shape[1]] > 0.5
        predicted = torch.einsum("vd,vrd->vr", guess, table[view.served.clamp(min=0)]) > 0  # type: ignore[union-attr]
        wrong = ((predicted != labels) & mask).sum(1) / mask.sum(1)
        cosine = torch.nn.functional.cosine_similarity(guess, own, dim=1)
        metrics = {"error": error, "label-error": wrong, "cosine": cosine, "flipped": (cosine < 0).double()}
        return Scores(metrics, mask.sum(1), (labels & mask).sum(1))


@dataclass(frozen=True, kw_only=True)
class MembershipEstimate(Estimate):
    """Whether something that the server has in mind was among a client's data.

    Attributes:
        scores: ``(V,)``, higher means more likely.
        decisions: ``(V,)`` bool, the attack's own decision (threshold found without the truth).
    """

    truth = ("member",)
    metrics = ("auc", "tpr", "fpr")
    scores: Tensor
    decisions: Tensor

    def check(self, view: ServerView) -> None:
        check_tensor("scores", self.scores, (view.victims,))
        check_tensor("decisions", self.decisions, (view.victims,), dtype=torch.bool)

    def score(self, view: ServerView, truth: Mapping[str, Tensor]) -> Scores:
        """AUC of the scores over the clients of the view, and rates of the decisions.

        Each member has the share of the others that it outranks, ties half; their mean is the AUC. ``tpr`` is defined
        for members, ``fpr`` for the others.
        """
        member = truth["member"] > 0.5
        wins = torch.full((len(member),), torch.nan, dtype=torch.float64)
        if bool(member.any()) and not bool(member.all()):
            wins[member] = wins_over_negatives(self.scores, member)
        decided = self.decisions.double()
        rates = {"tpr": decided.masked_fill(~member, torch.nan), "fpr": decided.masked_fill(member, torch.nan)}
        return Scores({"auc": wins, **rates}, torch.ones_like(member, dtype=torch.int64), member.long())


@dataclass(frozen=True, kw_only=True)
class CompositionEstimate(Estimate):
    """The share of each class among a client's examples.

    Attributes:
        proportions: ``(V, K)``, at least 0, each row summing to one.
        low: ``(V, K)`` lower ends of the intervals of the proportions, NaN where the attack gives none.
        high: ``(V, K)`` upper ends.
        present: ``(V, K)`` bool, which classes the client has at all.
    """

    truth = ("class_counts",)
    metrics = ("l1", "l2", "linf", "null_false_positive", "null_false_negative", "coverage")
    proportions: Tensor
    low: Tensor
    high: Tensor
    present: Tensor

    def check(self, view: ServerView) -> None:
        shape = self.proportions.shape
        if len(shape) != 2 or shape[0] != view.victims:
            raise EstimateError(f"proportions: expected shape ({view.victims}, K), got {tuple(shape)}")
        for name, tensor in (("low", self.low), ("high", self.high), ("present", self.present)):
            dtype = torch.bool if name == "present" else tensor.dtype
            check_tensor(name, tensor, tuple(shape), dtype=dtype)
        sums = self.proportions.double().sum(1)
        if not bool(((sums - 1).abs() < _SUM_TOLERANCE).all() and (self.proportions >= 0).all()):
            raise EstimateError(
                f"proportions: expected numbers of at least 0 that sum to one, got sums {sums.tolist()}"
            )
        outside = (self.low > self.proportions + _SUM_TOLERANCE) | (self.high < self.proportions - _SUM_TOLERANCE)
        if bool(outside.any()):
            raise EstimateError("low and high: expected an interval about every proportion")

    def score(self, view: ServerView, truth: Mapping[str, Tensor]) -> Scores:
        """Distances of proportions (Decaf, equation 3), errors about null classes, and coverage of the intervals."""
        counts = truth["class_counts"].double()
        shares = counts / counts.sum(1, keepdim=True)
        inferred = self.proportions.double()
        held = counts > 0
        metrics = composition_errors(inferred, shares) | null_class_errors(self.present, held)
        inside = (shares >= self.low - _ROUNDING) & (shares <= self.high + _ROUNDING)
        given = (held | self.present) & self.low.isfinite()
        if bool(given.any()):
            metrics["coverage"] = (inside & given).sum(1) / given.sum(1).double().masked_fill(~given.any(1), torch.nan)
        profiles = torch.stack([shares, inferred, self.low.double(), self.high.double()], dim=2)
        return Scores(metrics, torch.full((len(counts),), counts.shape[1]), held.sum(1), profiles=profiles)


@dataclass(frozen=True, kw_only=True)
class IdentityEstimate(Estimate):
    """Whose message it is.

    Attributes:
        scores: ``(V, U)``, higher means more likely; of one message among users, and of one user among messages.
        users: ``(U,)`` numbers of the users that the columns are about, each once; `UNSEEN` for anybody else.
    """

    truth = ("user",)
    metrics = ("ap", "times-chance", "times-random", "top1", "top5")
    scores: Tensor
    users: Tensor

    def check(self, view: ServerView) -> None:
        check_tensor("scores", self.scores, (view.victims, len(self.users)))
        if len(torch.unique(self.users)) != len(self.users):
            raise EstimateError("users: expected each once")

    def score(self, view: ServerView, truth: Mapping[str, Tensor]) -> Scores:
        """Scores of each known user who has a message at all (deanonymization, section 6, "Evaluation Metrics").

        ``ap`` is the area under the precision-recall curve over all messages; ``times-chance`` the same divided by the
        mean share of messages that are a user's, the paper's chance level; ``times-random`` divided by what a random
        order of so few messages has in the mean, which is more; ``top1`` and ``top5`` the share of a user's messages
        for which it is the first, or among the first five.
        """
        users = truth["user"]
        labels = torch.where(torch.isin(users, self.users), users, UNSEEN)
        positive = labels[:, None] == self.users
        counts = positive.sum(0)
        seen = counts > 0
        precision = average_precision(self.scores[:, seen], positive[:, seen])
        total, column = len(users), positive.int().argmax(1)
        chance = (counts[seen].double() / total).mean()
        random = random_average_precision(counts[seen], total).mean()
        metrics = {"ap": precision, "times-chance": precision / chance, "times-random": precision / random}
        for places in (1, 5):
            hits = top_share(self.scores, column, places) * positive.any(1)
            sums = torch.zeros(len(counts), dtype=torch.float64).index_add_(0, column, hits)
            metrics[f"top{places}"] = sums[seen] / counts[seen]
        return Scores(metrics, torch.full_like(counts[seen], view.victims), counts[seen], units=self.users[seen])


@dataclass(frozen=True, kw_only=True)
class MatchingEstimate(Estimate):
    """Which pairs of messages come from one user.

    Attributes:
        scores: ``(M,)``, higher means more likely, of the pairs that the view asks about.
    """

    truth = ("user", "known_user")
    metrics = ("ap", "times-chance")
    scores: Tensor

    def check(self, view: ServerView) -> None:
        check_tensor("scores", self.scores, (len(asked_pairs(view)),))

    def score(self, view: ServerView, truth: Mapping[str, Tensor]) -> Scores:
        """Average precision over all pairs together, as the mean of what each user's matching pairs contribute to it.

        Each user counts the same. As all users share one ranking, a user's pairs also decide the others' precision: the
        influences are the jackknife's pseudo-values, of the ranking without the pairs that a user has a part in.
        """
        first, second = torch.cat([truth["user"], truth["known_user"]])[asked_pairs(view)].T
        match = first == second
        numbers, counts, own = _shared_ranking(self.scores, first, match)
        total, whole = len(numbers), own.mean()
        pseudo = []
        for user in numbers.tolist():
            kept = (first != user) & (second != user)
            without = _shared_ranking(self.scores[kept], first[kept], match[kept])[2]
            pseudo.append(total * whole - (total - 1) * (without.mean() if len(without) else whole))
        influence, chance = torch.stack(pseudo) if pseudo else own, match.double().mean()
        return Scores(
            {"ap": own, "times-chance": own / chance},
            torch.full_like(counts, view.victims),
            counts,
            units=numbers,
            influences={"ap": influence, "times-chance": influence / chance},
        )


def asked_pairs(view: ServerView) -> Tensor:
    """``(M, 2)`` numbers of the messages that the view asks about; see `ServerView.pairs`.

    Raises:
        ViewError: it asks about none, or a number is of no message.
    """
    if view.pairs is None:
        raise ViewError("expected a view that asks about pairs of messages, got one without")
    messages = view.victims + (0 if view.known is None else view.known.victims)
    if len(view.pairs) and not 0 <= int(view.pairs.min()) <= int(view.pairs.max()) < messages:
        raise ViewError(f"expected pairs of messages below {messages}, got one of {int(view.pairs.max())}")
    return view.pairs


def _shared_ranking(scores: Tensor, first: Tensor, match: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Users with a match ``(U,)``, how many each has, and the mean precision at them, over pairs ranked together."""
    precision = precision_at_positives(scores, match)
    numbers, owner, counts = torch.unique(first[match], return_inverse=True, return_counts=True)
    sums = torch.zeros(len(numbers), dtype=torch.float64).index_add_(0, owner, precision)
    return numbers, counts, sums / counts
