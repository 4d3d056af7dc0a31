"""Estimates, the results of attacks, which check themselves against the view and score against the ground truth."""

import abc
import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor

from attacks.scoring import (
    auc_per_victim,
    composition_errors,
    exact_counts,
    f1_per_victim,
    null_class_errors,
    roc_per_victim,
    wins_over_negatives,
)
from protocol.class_paths import check_declared
from protocol.errors import ViewError, require
from protocol.metric_table import METRICS, Metric, metric_names
from protocol.view import ITEM_EMBEDDING, View

ROC_GRID = torch.linspace(0, 1, 101)
"""False-positive rates of the mean ROC curves."""
_ROUNDING = 1e-6
"""Tolerance for float32 shares, e.g. of a client with one class."""
_SUM_TOLERANCE = 1e-4
"""Tolerance for the sum of float32 proportions."""


class EstimateError(Exception):
    """An attack returned an estimate of the wrong type or shape, which is a defect of the attack."""


Detail = Mapping[str, str | int | float | bool | None]
"""One row of an attack's own table."""


@dataclass(frozen=True)
class Candidates:
    """Things that an attack ranks, each true or false: items, classes, users.

    Attributes:
        asks: question about one of them, e.g. "did the client interact with this item?".
        scores: ``(N,)``, higher means more likely true.
        labels: ``(N,)`` bool, whether it is true.
        owners: ``(N,)`` number of the client in the view that each is about; the user if `Scores.units` are users.
    """

    asks: str
    scores: Tensor
    labels: Tensor
    owners: Tensor

    @classmethod
    def of_rows(cls, asks: str, scores: Tensor, labels: Tensor, mask: Tensor | None = None) -> "Candidates":
        """Candidates of a view of which each client has a row ``(V, R)``, those in the mask only."""
        kept = torch.ones_like(labels, dtype=torch.bool) if mask is None else mask
        owners = torch.arange(len(kept))[:, None].expand(kept.shape)
        return cls(asks, scores[kept], labels[kept] > 0.5, owners[kept])

    def without(self, victims: Tensor) -> "Candidates":
        """Candidates of the clients that are not in a mask ``(V,)``."""
        kept = ~victims[self.owners]
        return Candidates(self.asks, self.scores[kept], self.labels[kept], self.owners[kept])


@dataclass(frozen=True)
class Reconstruction:
    """Images and their reconstructions, for a figure.

    Attributes:
        originals: ``(K, channels, height, width)`` in [0, 1].
        found: ``(K, channels, height, width)`` reconstruction of each.
    """

    originals: Tensor
    found: Tensor


@dataclass(frozen=True)
class Scores:
    """Scores of an estimate, one value per victim and metric.

    Attributes:
        metrics: ``(V,)`` by name of the metric; NaN where it is undefined for a victim.
        items: ``(V,)`` number of things asked about each victim, e.g. of its items; 0 if left out.
        positives: ``(V,)`` number of them that are true; 0 if left out.
        units: ``(U,)`` users, if the scores are of users instead of victims; every ``(V,)`` here is then ``(U,)``.
        influences: ``(U,)`` by metric, the users' jackknife pseudo-values for intervals, if the users' values depend on
            one another; the mean is the same.
        roc: ``(V, G)`` true-positive rates at `ROC_GRID`, NaN for a victim without a curve.
        profiles: ``(V, K, 4)`` true share, inferred share and interval of each class.
        candidates: what was ranked, so that a threshold on all scores has a true- and a false-positive rate.
        details: rows of the attack's own table, which the report shows as it is.
        reconstruction: some images and their reconstructions.
        settings: ``(V,)`` by key: further setting columns of the values, e.g. which attribute of a person one is about.
    """

    metrics: Mapping[str, Tensor]
    items: Tensor | None = None
    positives: Tensor | None = None
    units: Tensor | None = None
    influences: Mapping[str, Tensor] = field(default_factory=dict)
    roc: Tensor | None = None
    profiles: Tensor | None = None
    candidates: Candidates | None = None
    details: Sequence[Detail] = ()
    reconstruction: Reconstruction | None = None
    settings: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def without(self, victims: Tensor) -> "Scores":
        """Scores in which the victims of a mask ``(V,)`` are undefined: NaN, in no curve and among no candidates."""
        metrics = {name: value.double().masked_fill(victims, torch.nan) for name, value in self.metrics.items()}
        roc = None if self.roc is None else self.roc.masked_fill(victims[:, None], torch.nan)
        ranked = None if self.candidates is None else self.candidates.without(victims)
        return dataclasses.replace(self, metrics=metrics, roc=roc, candidates=ranked)


@dataclass(frozen=True, kw_only=True)
class Estimate(abc.ABC):
    """Base class of estimates: a frozen dataclass of tensors.

    Attributes:
        inferred: what the server infers; completes "the server can infer from a client's update ..." in a report.
        truth: names of the recorded ground truth that `score` needs.
        metrics: what `score` returns; names in `protocol.metric_table.METRICS`, or new entries for it.

    Raises:
        InputError: a subclass lacks one of them.
    """

    inferred: ClassVar[str]
    truth: ClassVar[tuple[str, ...]]
    metrics: ClassVar[tuple[str | Metric, ...]]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        check_declared(cls, Estimate)
        for name in metric_names(vars(cls).get("metrics", ())):
            require(
                name in METRICS, f"metrics of {cls.__name__} in the table of metrics", name, "Give a Metric for it."
            )

    @classmethod
    def metric_names(cls) -> tuple[str, ...]:
        """Names of its metrics."""
        return metric_names(cls.metrics)

    @classmethod
    def question(cls) -> str:
        """Name of the question that it answers: of its ancestor directly below `Estimate`, or its own.

        Attacks are compared by it, so an estimate that adds something to another still stands next to its baselines.
        """
        return next(kind.__name__ for kind in cls.__mro__ if Estimate in kind.__bases__)

    @abc.abstractmethod
    def check(self, view: View) -> None:
        """Raises `EstimateError` unless every tensor has the shape that the view requires and is finite."""

    @abc.abstractmethod
    def score(self, view: View, truth: Mapping[str, Tensor]) -> Scores:
        """Scores the estimate against ground truth ``(V, ...)`` of the same victims, by name."""


def check_tensor(name: str, tensor: Tensor, shape: tuple[int, ...], *, dtype: torch.dtype | None = None) -> None:
    """Checks a field of an estimate; without a `dtype` any finite numbers are allowed.

    Raises:
        EstimateError: the tensor has another shape or type, or holds NaN or infinity.
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
        decisions: ``(V, R)`` bool, the attack's own decisions, made without the ground truth; False where padded.
    """

    inferred = "which of the items it was shown the client interacted with"
    truth = ("labels",)
    metrics = ("auc", "f1")
    scores: Tensor
    decisions: Tensor

    def check(self, view: View) -> None:
        mask = view.served_mask
        check_tensor("decisions", self.decisions, tuple(mask.shape), dtype=torch.bool)
        check_tensor("scores", self.scores, tuple(mask.shape), dtype=self.scores.dtype)
        check_tensor("scores of served items", self.scores[mask], (int(mask.sum()),))

    def score(self, view: View, truth: Mapping[str, Tensor]) -> Scores:
        """AUC of the scores and F1 of the decisions over each victim's served items."""
        mask = view.served_mask
        labels = truth["labels"][:, : mask.shape[1]]
        auc = auc_per_victim(self.scores, labels, mask)
        metrics = {"auc": auc, "f1": f1_per_victim(self.decisions, labels, mask)}
        roc = roc_per_victim(self.scores, labels, mask, ROC_GRID).masked_fill(auc.isnan()[:, None], torch.nan)
        candidates = Candidates.of_rows("did the client interact with this item?", self.scores, labels, mask)
        return Scores(metrics, mask.sum(1), ((labels > 0.5) & mask).sum(1), roc=roc, candidates=candidates)


@dataclass(frozen=True, kw_only=True)
class VectorEstimate(Estimate):
    """The private vector of each client, up to a positive factor.

    Attributes:
        vectors: ``(V, d)``, d as of the item vectors.

    References:
        London, "PAC Identifiability in Federated Personalization", 2020, Definition 1 and Proposition 1.
    """

    inferred = "the client's private vector, which predicts what it likes"
    truth = ("user_vector", "labels")
    metrics = ("error", "success", "label-error", "cosine", "flipped")
    vectors: Tensor

    def check(self, view: View) -> None:
        check_tensor("vectors", self.vectors, (view.victims, view.deltas[ITEM_EMBEDDING].shape[-1]))

    def score(self, view: View, truth: Mapping[str, Tensor]) -> Scores:
        """Compares the predictions ``sgn(u.v)`` of the estimates with those of the clients' vectors.

        ``error`` is the share of the catalogue on which they differ, ``label-error`` the share of the client's labelled
        items on which the estimate contradicts the label, ``cosine`` the cosine of the two vectors, ``flipped`` 1 if it
        is negative. `evaluation.runner.successes` adds ``success``, which needs the tolerance of a table or a training.
        """
        table, items = view.model[ITEM_EMBEDDING].double(), view.served
        guess, own = self.vectors.double(), truth["user_vector"].double()
        error = ((guess @ table.T).sign() != (own @ table.T).sign()).double().mean(1)
        if items is None:  # clients hide which items they labelled: labels of all items, -1 where there is none
            if truth["labels"].shape != error.shape + table.shape[:1]:
                found = tuple(truth["labels"].shape[1:])
                raise ViewError(f"expected the labels of all {len(table)} items in the ground truth, got {found}")
            items = torch.where(truth["labels"] >= 0, torch.arange(len(table)), -1)
        mask = items >= 0
        labels = truth["labels"][:, : mask.shape[1]] > 0.5
        predicted = (guess @ table.T).gather(1, items.clamp(min=0)) > 0
        wrong = ((predicted != labels) & mask).sum(1) / mask.sum(1)
        cosine = torch.nn.functional.cosine_similarity(guess, own, dim=1)
        metrics = {"error": error, "label-error": wrong, "cosine": cosine, "flipped": (cosine < 0).double()}
        return Scores(metrics, mask.sum(1), (labels & mask).sum(1))


@dataclass(frozen=True, kw_only=True)
class MembershipEstimate(Estimate):
    """Whether a given record was in a client's data.

    Attributes:
        scores: ``(V,)``, higher means more likely.
        decisions: ``(V,)`` bool, the attack's own decisions, made without the ground truth.
    """

    inferred = "whether a given record is among the client's data"
    truth = ("member",)
    metrics = ("auc", "tpr", "fpr")
    scores: Tensor
    decisions: Tensor

    def check(self, view: View) -> None:
        check_tensor("scores", self.scores, (view.victims,))
        check_tensor("decisions", self.decisions, (view.victims,), dtype=torch.bool)

    def score(self, view: View, truth: Mapping[str, Tensor]) -> Scores:
        """AUC of the scores over the clients of the view, and rates of the decisions.

        ``auc`` of a member is the share of non-members ranked below it, ties half; the mean is the AUC. ``tpr`` is
        defined for members, ``fpr`` for non-members.
        """
        member = truth["member"] > 0.5
        wins = torch.full((len(member),), torch.nan, dtype=torch.float64)
        if bool(member.any()) and not bool(member.all()):
            wins[member] = wins_over_negatives(self.scores, member)
        decided = self.decisions.double()
        rates = {"tpr": decided.masked_fill(~member, torch.nan), "fpr": decided.masked_fill(member, torch.nan)}
        candidates = Candidates("is this the client's record?", self.scores, member, torch.arange(len(member)))
        return Scores(
            {"auc": wins, **rates}, torch.ones_like(member, dtype=torch.int64), member.long(), candidates=candidates
        )


@dataclass(frozen=True, kw_only=True)
class CompositionEstimate(Estimate):
    """The share of each class among a client's examples.

    Attributes:
        proportions: ``(V, K)``, at least 0, each row summing to one.
        low: ``(V, K)`` lower bounds of the intervals, NaN if the attack gives none.
        high: ``(V, K)`` upper bounds.
        present: ``(V, K)`` bool, the classes of which the client has examples.

    References:
        Dai, Zhou and Fu, "Decaf: Data Distribution Decompose Attack against Federated Learning", 2024,
        arXiv:2405.15316, equation 3.
    """

    inferred = "what share of its examples each class has"
    truth = ("class_counts",)
    metrics: ClassVar[tuple[str | Metric, ...]] = (
        "l1",
        "l2",
        "linf",
        "exact",
        "null_false_positive",
        "null_false_negative",
        "coverage",
    )
    proportions: Tensor
    low: Tensor
    high: Tensor
    present: Tensor

    def check(self, view: View) -> None:
        shape = self.proportions.shape
        if len(shape) != 2 or shape[0] != view.victims:
            raise EstimateError(f"proportions: expected shape ({view.victims}, K), got {tuple(shape)}")
        for name, tensor in (("low", self.low), ("high", self.high), ("present", self.present)):
            dtype = torch.bool if name == "present" else tensor.dtype
            check_tensor(name, tensor, tuple(shape), dtype=dtype)
        sums = self.proportions.double().sum(1)
        if not bool(((sums - 1).abs() < _SUM_TOLERANCE).all() and (self.proportions >= 0).all()):
            raise EstimateError(f"proportions: expected non-negative numbers that sum to one, got sums {sums.tolist()}")
        outside = (self.low > self.proportions + _SUM_TOLERANCE) | (self.high < self.proportions - _SUM_TOLERANCE)
        if bool(outside.any()):
            raise EstimateError("low and high: expected intervals that contain the proportions")

    def score(self, view: View, truth: Mapping[str, Tensor]) -> Scores:
        """Distances of the proportions, exact counts, errors on null classes, and coverage of the intervals."""
        counts = truth["class_counts"].double()
        if counts.shape[1] != self.proportions.shape[1]:
            raise ViewError(f"expected an estimate of {counts.shape[1]} classes, got {self.proportions.shape[1]}")
        shares = counts / counts.sum(1, keepdim=True)
        inferred = self.proportions.double()
        held = counts > 0
        metrics = composition_errors(inferred, shares) | null_class_errors(self.present, held)
        metrics |= exact_counts(inferred, counts)
        inside = (shares >= self.low - _ROUNDING) & (shares <= self.high + _ROUNDING)
        given = (held | self.present) & self.low.isfinite()
        if bool(given.any()):
            metrics["coverage"] = (inside & given).sum(1) / given.sum(1).double().masked_fill(~given.any(1), torch.nan)
        profiles = torch.stack([shares, inferred, self.low.double(), self.high.double()], dim=2)
        candidates = Candidates.of_rows("does the client hold examples of this class?", inferred, held)
        sizes = torch.full((len(counts),), counts.shape[1]), held.sum(1)
        return Scores(metrics, *sizes, profiles=profiles, candidates=candidates)
