"""Estimates, the results of attacks, which check themselves against the view and score against the ground truth."""

import abc
import dataclasses
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor

from fedleak.core.answers import Choices, Quantities
from fedleak.core.class_paths import check_declared
from fedleak.core.errors import require
from fedleak.core.metric import Metric
from fedleak.core.metric_table import JUDGED_BY, METRICS, metric_names
from fedleak.core.reconstruction import Reconstruction as Reconstruction
from fedleak.core.roc_grid import false_positive_rates
from fedleak.core.view import View

ROC_GRID = torch.from_numpy(false_positive_rates())
"""False-positive rates of the mean ROC curves."""


class EstimateError(Exception):
    """An attack returned an estimate of the wrong type or shape, which is a defect of the attack."""


Detail = Mapping[str, str | int | float | bool | None]
"""One row of an attack's own table."""
PLACE = "place in the pool"
"""Column of such a table: the number of a candidate record, of which the row says how exposed it is."""


@dataclass(frozen=True)
class Candidates:
    """Things that an attack ranks, each true or false: items, classes, users.

    Attributes:
        asks: question about one of them, e.g. "did the client interact with this item?".
        scores: ``(N,)``, higher means more likely true.
        labels: ``(N,)`` bool, whether it is true.
        owners: ``(N,)`` number of the client in the view that each is about; the user if `Scores.units` are users.

    Example:
        >>> import torch
        >>> from fedleak import Candidates
        >>> asks = "did the client interact with this item?"
        >>> ranked = Candidates.of_rows(asks, torch.tensor([[0.9, 0.2], [0.4, 0.6]]), torch.tensor([[1, 0], [0, 1]]))
        >>> ranked.owners, ranked.labels
        (tensor([0, 0, 1, 1]), tensor([ True, False, False,  True]))
    """

    asks: str
    scores: Tensor
    labels: Tensor
    owners: Tensor

    @classmethod
    def of_rows(cls, asks: str, scores: Tensor, labels: Tensor, mask: Tensor | None = None) -> "Candidates":
        """Candidates of a view of which each client has a row ``(V, R)``, those in the mask only."""
        in_mask = mask
        if in_mask is None:
            in_mask = torch.ones_like(labels, dtype=torch.bool)
        # Row v of the matrix is of client v.
        owners = torch.arange(len(in_mask))[:, None].expand(in_mask.shape)
        return cls(asks, scores[in_mask], labels[in_mask] > 0.5, owners[in_mask])

    @classmethod
    def joined(cls, parts: Sequence["Candidates"]) -> "Candidates":
        """Concatenation of candidates of one question."""
        return cls(
            parts[0].asks,
            torch.cat([part.scores for part in parts]),
            torch.cat([part.labels for part in parts]),
            torch.cat([part.owners for part in parts]),
        )

    def without(self, victims: Tensor) -> "Candidates":
        """Candidates of the clients that are not in a mask ``(V,)``."""
        remaining = ~victims[self.owners]
        return Candidates(self.asks, self.scores[remaining], self.labels[remaining], self.owners[remaining])


@dataclass(frozen=True)
class Scores:
    """Scores of an estimate, one value per victim and metric.

    Attributes:
        metrics: ``(V,)`` by name of the metric; NaN where it is undefined for a victim.
        items: ``(V,)`` number of things asked about each victim, e.g. of its items; 0 if left out.
        positives: ``(V,)`` number of them that are true; 0 if left out.
        units: ``(U,)`` users, if the scores are of users instead of victims; every ``(V,)`` here is then ``(U,)``.
        influences: ``(U,)`` by metric, the users' jackknife pseudo-values for intervals, if the users' values depend on
            one another; the mean is the same. Single values may then lie beyond the metric's span.
        roc: ``(V, G)`` true-positive rates at `ROC_GRID`, NaN for a victim without a curve.
        profiles: ``(V, K, 4)`` true share, inferred share and interval of each class.
        candidates: what was ranked, so that a threshold on all scores has a true- and a false-positive rate.
        details: rows of the attack's own table, which the report shows as it is.
        reconstruction: some images and their reconstructions.
        answers: what the estimate says of the answers, to which a prior can be added; None if it cannot.
        settings: ``(V,)`` by key: further setting columns of the values, e.g. which attribute of a person one is about.

    Example:
        >>> import torch
        >>> from fedleak import Scores
        >>> scores = Scores({"auc": torch.tensor([1.0, 0.5])})
        >>> scores.without(torch.tensor([True, False])).metrics["auc"]
        tensor([   nan, 0.5000], dtype=torch.float64)
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
    answers: Choices | Quantities | None = None
    settings: Mapping[str, Sequence[str | int]] = field(default_factory=dict)

    def without(self, victims: Tensor) -> "Scores":
        """Scores in which the victims of a mask ``(V,)`` are undefined: NaN, in no curve and among no candidates."""
        metrics = {name: value.double().masked_fill(victims, torch.nan) for name, value in self.metrics.items()}
        roc = self.roc
        if roc is not None:
            roc = roc.masked_fill(victims[:, None], torch.nan)
        candidates = self.candidates
        if candidates is not None:
            candidates = candidates.without(victims)
        return dataclasses.replace(self, metrics=metrics, roc=roc, candidates=candidates)


@dataclass(frozen=True, kw_only=True)
class Estimate(abc.ABC):
    """Base class of estimates: a frozen dataclass of tensors.

    Attributes:
        inferred: what the server infers; completes "the server can infer from a client's update ..." in a report.
        truth: names of the recorded ground truth that `score` needs.
        metrics: what `score` returns; names in `fedleak.core.metric_table.METRICS`, or new entries for it.
        judged_by: which of them attacks on the question are compared by; empty for those that are `Metric.judged`.

    Example:
        >>> from dataclasses import dataclass
        >>> import torch
        >>> from fedleak import Estimate, Metric, Scores
        >>> from fedleak.core.estimates import check_tensor
        >>> @dataclass(frozen=True, kw_only=True)
        ... class SizeEstimate(Estimate):
        ...     '''The number of examples of each client, ``(V,)``.'''
        ...
        ...     inferred = "how many examples a client has"
        ...     truth = ("sizes",)
        ...     metrics = (Metric("size-error", "The size error is relative, 0 for certainty.", lower_is_better=True),)
        ...     sizes: torch.Tensor
        ...
        ...     def check(self, view):
        ...         check_tensor("sizes", self.sizes, (view.victims,))
        ...
        ...     def score(self, view, truth):
        ...         return Scores({"size-error": (self.sizes - truth["sizes"]).abs() / truth["sizes"]})
        >>> SizeEstimate(sizes=torch.tensor([9.0, 30.0])).score(None, {"sizes": torch.tensor([10.0, 30.0])}).metrics
        {'size-error': tensor([0.1000, 0.0000])}
    """

    inferred: ClassVar[str]
    truth: ClassVar[tuple[str, ...]]
    metrics: ClassVar[tuple[str | Metric, ...]]
    judged_by: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        check_declared(cls, Estimate)
        # Names of metrics must be in the table; a Metric in the place of a name is added to it.
        for name in metric_names(vars(cls).get("metrics", ())):
            require(
                name in METRICS,
                f"metrics of {cls.__name__} in the table of metrics",
                name,
                "Give a Metric for it.",
            )
        if cls.judged_by:
            JUDGED_BY[cls.question()] = cls.judged_by

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

    @classmethod
    def inapplicable(cls, view: View, truth: Collection[str]) -> str | None:  # noqa: ARG003
        """Why the question cannot be asked of the clients of a view, as a clause; None where it can.

        It is None too where the recording does not say what the clients train: the question is then not measured.

        Args:
            view: what the server saw.
            truth: names in the ground truth of the recording.

        See Also:
            `fedleak.attacks.applicability`, which has the kinds of systems.
        """
        return None

    @abc.abstractmethod
    def check(self, view: View) -> None:
        """Raises `EstimateError` unless every tensor has the shape that the view requires and is finite."""

    @abc.abstractmethod
    def score(self, view: View, truth: Mapping[str, Tensor]) -> Scores:
        """Scores the estimate against ground truth ``(V, ...)`` of the same victims, by name."""


def check_tensor(
    name: str, tensor: Tensor, shape: tuple[int, ...], *, dtype: torch.dtype | None = None, finite: bool = True
) -> None:
    """Checks a field of an estimate.

    Args:
        name: name of the field.
        tensor: its value.
        shape: shape that it must have.
        dtype: type that it must have; None for any.
        finite: whether NaN and infinity are refused; False where NaN says that there is no number.

    Raises:
        EstimateError: the tensor has another shape or type, or holds NaN or infinity.
    """
    if not isinstance(tensor, Tensor):
        raise EstimateError(f"{name}: expected shape {shape}, got {type(tensor).__name__}")
    if tensor.shape != shape:
        raise EstimateError(f"{name}: expected shape {shape}, got {tuple(tensor.shape)}")
    if dtype is not None and tensor.dtype != dtype:
        raise EstimateError(f"{name}: expected {dtype}, got {tensor.dtype}")
    if finite and not bool(torch.isfinite(tensor).all()):
        raise EstimateError(f"{name}: expected finite numbers")
