"""What an attack is given, what it must say about itself, and what it returns.

This file is the wall between an attack and the clients' data: an attack sees a `ServerView` and nothing else.
"""

import abc
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import ClassVar, Protocol, final, runtime_checkable

import torch
from torch import Tensor

ITEM_EMBEDDING = "item_embedding.weight"
"""Name of the public item table in every recommender's parameters."""


_SUM_TOLERANCE = 1e-4
"""Rounding of proportions in float32."""


class ViewError(Exception):
    """A server view lacks what an attack needs, or holds something no attack can use."""


class EstimateError(Exception):
    """An attack returned something of another shape than it promised: a defect of the attack."""


@dataclass(frozen=True, kw_only=True)
class ThreatModel:
    """The adversary, in words that every report prints.

    Attributes:
        sees: what the server observes.
        knows: what it knows beside that (the learning algorithm, a prior, auxiliary data).
        active: whether it deviates from the protocol.
        needs: names of the `ServerView` fields that must be present for the attack to run.
    """

    sees: str
    knows: str
    active: bool = False
    needs: tuple[str, ...] = ("deltas",)


class Learner(Protocol):
    """The clients' local algorithm, which is public: the server wrote it.

    It simulates clients; it holds no client's data.
    """

    @property
    def user_dim(self) -> int:
        """Length of a client's private vector."""

    @property
    def learning_rate(self) -> float:
        """Local learning rate."""

    def simulate(
        self,
        model: Mapping[str, Tensor],
        items: Tensor,
        labels: Tensor,
        users: Tensor,
        *,
        differentiable: bool = False,
    ) -> dict[str, Tensor]:
        """Trains simulated clients as the real ones train.

        Args:
            model: the global model before the round, one tensor per public parameter.
            items: item numbers ``(B, R)``, padded with -1.
            labels: interactions in [0, 1], ``(B, R)``; soft labels are allowed.
            users: private user vectors before the round ``(B, user_dim)``.
            differentiable: keep the graph, so that gradients reach `labels` and `users`.

        Returns:
            Deltas by parameter name: ``(B, R, d)`` for the item table (zero where padded), ``(B, *shape)`` for others.
        """


@runtime_checkable
class RankingLearner(Protocol):
    """The clients' local algorithm where they click in ranked lists."""

    click_model: str
    grade_law: Tensor

    @property
    def learning_rate(self) -> float:
        """Local learning rate."""

    def simulate_lists(
        self,
        model: Mapping[str, Tensor],
        features: Tensor,
        mask: Tensor,
        clicks: Tensor,
        order: Tensor | None = None,
    ) -> dict[str, Tensor]:
        """Trains simulated clients as the real ones train, list after list; gradients reach `clicks`.

        Args:
            model: the global model before the round, one tensor per public parameter.
            features: ``(B, Q, L, F)`` features as served, in displayed order.
            mask: ``(B, Q, L)`` True for documents; padding comes last.
            clicks: ``(B, Q, L)`` in [0, 1], zero where padded.
            order: ``(B, Q)`` in which the lists are worked through, None for the order in which they are given.

        Returns:
            Deltas by parameter name, ``(B, *shape)``.
        """


@runtime_checkable
class MarginLearner(Protocol):
    """The clients' local algorithm where the loss of an item is a function of the margin, ``l(y u.v)``."""

    @property
    def slope_at_zero(self) -> float:
        """Derivative of the loss at margin 0."""

    @property
    def learning_rate(self) -> float:
        """Local learning rate."""


@runtime_checkable
class ClassifierLearner(Protocol):
    """The clients' local algorithm where they learn to classify; the network ends in one linear layer."""

    @property
    def output_layer(self) -> str:
        """Name of the last layer: its parameters are ``NAME.weight (K, F)`` and ``NAME.bias (K,)``."""

    def simulate_examples(
        self,
        model: Mapping[str, Tensor],
        images: Tensor,
        labels: Tensor,
        examples: Tensor,
        *,
        generator: torch.Generator,
    ) -> dict[str, Tensor]:
        """Trains simulated clients as the real ones train, all from the same global model.

        Args:
            model: the global model before the round, one tensor per public parameter.
            images: a pool ``(M, channels, height, width)``.
            labels: their classes ``(M,)``.
            examples: ``(B, N)`` int64, what each client holds of the pool, padded with -1 at the end.
            generator: source of the order of mini-batches.

        Returns:
            Deltas by parameter name, ``(B, *shape)``.
        """

    def outputs(self, models: Mapping[str, Tensor], images: Tensor) -> tuple[Tensor, Tensor]:
        """What several models make of the same images.

        Args:
            models: by parameter ``(B, *shape)``.
            images: ``(M, channels, height, width)``.

        Returns:
            What enters the last layer ``(B, M, F)``, and the logits ``(B, M, K)``.
        """

    def decay_change(self, model: Mapping[str, Tensor], example_counts: Tensor) -> dict[str, Tensor]:
        """What weight decay alone changes, where the optimizer keeps it apart from the gradients: plain SGD.

        Args:
            model: the global model before the round.
            example_counts: ``(V,)`` examples of each client.

        Returns:
            By parameter ``(V, *shape)``; zero where there is no decay, or it cannot be told apart.
        """


@runtime_checkable
class PointwiseLearner(Protocol):
    """The clients' local algorithm where they learn a score of each item by itself, in full-batch steps."""

    @property
    def learning_rate(self) -> float:
        """Local learning rate."""

    @property
    def full_batch_steps(self) -> int:
        """Steps, each over all items."""


@runtime_checkable
class ExampleLearner(Protocol):
    """The clients' local algorithm where they learn from examples of any kind."""

    def simulate_examples(
        self,
        model: Mapping[str, Tensor],
        features: Tensor,
        labels: Tensor,
        examples: Tensor,
        *,
        generator: torch.Generator,
    ) -> dict[str, Tensor]:
        """Trains simulated clients as the real ones train, all from the same global model.

        Args:
            model: the global model before the round, one tensor per public parameter.
            features: a pool ``(M, ...)``.
            labels: their labels ``(M, ...)``.
            examples: ``(B, N)`` int64, what each client holds of the pool, padded with -1 at the end.
            generator: source of the order of mini-batches.

        Returns:
            Deltas by parameter name, ``(B, *shape)``.
        """


LocalLearner = Learner | RankingLearner | ClassifierLearner | PointwiseLearner | ExampleLearner


@dataclass(frozen=True, kw_only=True)
class Release:
    """What the clients publicly do to their deltas before sending (a defence's parameters are not secret).

    Attributes:
        clip: L2 norm to which the released parameters are clipped, or None.
        noise_scale: standard deviation of the Gaussian noise on each released number, 0 for none.
        parameters: names of the parameters that are clipped and noised together.
    """

    clip: float | None = None
    noise_scale: float = 0.0
    parameters: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ServerView:
    """What the server saw of a few clients in one round. Nothing in it comes from a client but its update.

    Attributes:
        round: number of the communication round.
        pseudonyms: ``(V,)`` int64, the names under which the clients sent.
        example_counts: ``(V,)`` number of local examples as reported by the clients.
        deltas: by parameter; ``(V, *shape)``, or ``(V, R, *row_shape)`` for the names in `row_parameters`, whose
            rows are aligned with `served` and zero where padded. Where the server called the clients more than once,
            the sum of the messages; see `updates`.
        row_parameters: parameters of which only the rows of the served items are kept.
        served: ``(V, R)`` int64, items the server showed to each client, in an order that says nothing about the
            interactions; padded with -1. None where the server shows nothing.
        lists: ``(V, R)`` int64, which of the client's ranked lists a served item stands in, list after list and in
            displayed order within each; padded with -1. None where nothing is ranked.
        features: ``(V, R, F)`` features of the served items as the server sent them, zero where padded, or None.
        model: the global model before the round, by parameter.
        client_models: by parameter ``(V, *shape)``, where each client was sent a model of its own; None where all got
            `model`.
        releases: what the clients publicly do to their deltas before sending.
        learner: the clients' algorithm, None where it is unknown.
        updates: ``(V, R)`` in how many of the messages that `deltas` sums up each row was sent; None for one message.
        auxiliary: further knowledge of the adversary, by name; every use is stated in the threat model.
        earlier: what the server saw of the same victims, in the same order, in earlier rounds, the first first.
        sent_in: ``(V,)`` the round of each message, where a view joins the messages of several rounds and a pseudonym
            may stand in it more than once; None for one round.
        round_models: where it does, the global model before each round, by its number.
        known: what the server saw of devices of its own, which train on what it knows of users beforehand; whose they
            are is ``known.auxiliary["users"]`` ``(P,)``. None where it has none.
    """

    round: int
    pseudonyms: Tensor
    example_counts: Tensor
    deltas: Mapping[str, Tensor]
    model: Mapping[str, Tensor]
    row_parameters: frozenset[str] = frozenset()
    served: Tensor | None = None
    lists: Tensor | None = None
    features: Tensor | None = None
    client_models: Mapping[str, Tensor] | None = None
    releases: tuple[Release, ...] = ()
    learner: LocalLearner | None = None
    updates: Tensor | None = None
    auxiliary: Mapping[str, Tensor] = field(default_factory=dict)
    earlier: tuple["ServerView", ...] = ()
    sent_in: Tensor | None = None
    round_models: Mapping[int, Mapping[str, Tensor]] = field(default_factory=dict)
    known: "ServerView | None" = None

    @property
    def victims(self) -> int:
        """Number of clients in this view."""
        return int(self.pseudonyms.shape[0])

    @property
    def served_mask(self) -> Tensor:
        """``(V, R)`` True where `served` holds an item."""
        if self.served is None:
            raise ViewError("this recording does not say which items the server served")
        return self.served >= 0

    def recommender(self) -> Learner:
        """The clients' algorithm where they learn to recommend.

        Raises:
            ViewError: it is unknown, or of another kind.
        """
        others = RankingLearner | ClassifierLearner | PointwiseLearner | ExampleLearner
        if self.learner is None or isinstance(self.learner, others):
            raise ViewError("expected the learner of a recommender, got none or another kind of learner")
        return self.learner

    def ranker(self) -> RankingLearner:
        """The clients' algorithm where they learn to rank.

        Raises:
            ViewError: it is unknown, or of another kind.
        """
        if not isinstance(self.learner, RankingLearner):
            raise ViewError("expected the learner of a ranker, got none or another kind of learner")
        return self.learner

    def pointwise_learner(self) -> PointwiseLearner:
        """The clients' algorithm where they learn a score of each item by itself.

        Raises:
            ViewError: it is unknown, or of another kind.
        """
        if not isinstance(self.learner, PointwiseLearner):
            raise ViewError("expected the learner of a pointwise ranker, got none or another kind of learner")
        return self.learner

    def sent_models(self) -> Mapping[str, Tensor]:
        """The model that each client was sent, by parameter ``(V, *shape)``."""
        if self.client_models is not None:
            return self.client_models
        return {name: value.expand(self.victims, *value.shape) for name, value in self.model.items()}

    def margin_learner(self) -> MarginLearner:
        """The clients' algorithm where they learn from margins, as in matrix factorisation.

        Raises:
            ViewError: it is unknown, or of another kind.
        """
        if not isinstance(self.learner, MarginLearner):
            raise ViewError("expected the learner of matrix factorisation, got none or another kind of learner")
        return self.learner

    def classifier(self) -> ClassifierLearner:
        """The clients' algorithm where they learn to classify.

        Raises:
            ViewError: it is unknown, or of another kind.
        """
        if not isinstance(self.learner, ClassifierLearner):
            raise ViewError("expected the learner of a classifier, got none or another kind of learner")
        return self.learner

    def example_learner(self) -> ExampleLearner:
        """The clients' algorithm where they learn from examples.

        Raises:
            ViewError: it is unknown, or of another kind.
        """
        if not isinstance(self.learner, ExampleLearner):
            raise ViewError("expected a learner of examples, got none or another kind of learner")
        return self.learner

    def noise_scale(self, parameter: str) -> float:
        """Standard deviation of the Gaussian noise that clients add to `parameter` (0 where there is none)."""
        variances = [r.noise_scale**2 for r in self.releases if parameter in r.parameters]
        return math.sqrt(sum(variances))

    def clip(self, parameter: str) -> float | None:
        """Smallest L2 norm to which clients clip an update that holds `parameter`, None where they do not."""
        clips = [r.clip for r in self.releases if parameter in r.parameters and r.clip is not None]
        return min(clips) if clips else None

    def missing(self, needs: tuple[str, ...]) -> list[str]:
        """Names in `needs` that this view cannot give: fields, ``"auxiliary:NAME"`` or ``"deltas:PARAMETER"``.

        Raises:
            ViewError: no view has a field of that name.
        """
        known = {field.name for field in fields(self)}
        unknown = [name for name in needs if name.partition(":")[0] not in known]
        if unknown:
            raise ViewError(
                f"expected needs among the fields of a server view ({', '.join(sorted(known))}); found"
                f" {', '.join(unknown)}. Fix `needs` in the attack's threat model."
            )
        return [name for name in needs if not self._has(name)]

    def _has(self, name: str) -> bool:
        head, _, key = name.partition(":")
        value = getattr(self, head)
        return key in value if key else value is not None


@dataclass(frozen=True, kw_only=True)
class Estimate(abc.ABC):
    """What an attack says about the victims of one view, in the view's order."""

    @abc.abstractmethod
    def check(self, view: ServerView) -> None:
        """Raises `EstimateError` unless every tensor has the shape that `view` demands and is finite."""


@dataclass(frozen=True, kw_only=True)
class InteractionEstimate(Estimate):
    """Which of the served items a client interacted with.

    Attributes:
        scores: ``(V, R)``, higher means more likely interacted; ignored where padded.
        decisions: ``(V, R)`` bool, the attack's own decision (threshold found without the truth), False where padded.
    """

    scores: Tensor
    decisions: Tensor

    def check(self, view: ServerView) -> None:
        """See `Estimate.check`."""
        mask = view.served_mask
        for name, tensor in (("scores", self.scores), ("decisions", self.decisions)):
            if tensor.shape != mask.shape:
                raise EstimateError(f"{name}: expected shape {tuple(mask.shape)}, got {tuple(tensor.shape)}")
        if self.decisions.dtype != torch.bool:
            raise EstimateError(f"decisions: expected torch.bool, got {self.decisions.dtype}")
        if not bool(torch.isfinite(self.scores[mask]).all()):
            raise EstimateError("scores: expected finite numbers for every served item")


@dataclass(frozen=True, kw_only=True)
class VectorEstimate(Estimate):
    """The private vector of each client, up to a positive factor.

    Attributes:
        vectors: ``(V, d)``, of the length of an item vector.
    """

    vectors: Tensor

    def check(self, view: ServerView) -> None:
        """See `Estimate.check`."""
        expected = (view.victims, view.deltas[ITEM_EMBEDDING].shape[-1])
        if self.vectors.shape != expected:
            raise EstimateError(f"vectors: expected shape {expected}, got {tuple(self.vectors.shape)}")
        if not bool(torch.isfinite(self.vectors).all()):
            raise EstimateError("vectors: expected finite numbers")


@dataclass(frozen=True, kw_only=True)
class MembershipEstimate(Estimate):
    """Whether something that the server has in mind was among a client's data.

    Attributes:
        scores: ``(V,)``, higher means more likely.
        decisions: ``(V,)`` bool, the attack's own decision (threshold found without the truth).
    """

    scores: Tensor
    decisions: Tensor

    def check(self, view: ServerView) -> None:
        """See `Estimate.check`."""
        for name, tensor in (("scores", self.scores), ("decisions", self.decisions)):
            if tensor.shape != (view.victims,):
                raise EstimateError(f"{name}: expected shape ({view.victims},), got {tuple(tensor.shape)}")
        if self.decisions.dtype != torch.bool:
            raise EstimateError(f"decisions: expected torch.bool, got {self.decisions.dtype}")
        if not bool(torch.isfinite(self.scores).all()):
            raise EstimateError("scores: expected a finite number for every client")


@dataclass(frozen=True, kw_only=True)
class CompositionEstimate(Estimate):
    """What share of a client's examples is of each class.

    Attributes:
        proportions: ``(V, K)``, at least 0, each row summing to one.
        low: ``(V, K)`` lower ends of the intervals of the proportions, NaN where the attack gives none.
        high: ``(V, K)`` upper ends.
        present: ``(V, K)`` bool, which classes the client has at all, says the attack.
    """

    proportions: Tensor
    low: Tensor
    high: Tensor
    present: Tensor

    def check(self, view: ServerView) -> None:
        """See `Estimate.check`."""
        shape = self.proportions.shape
        if len(shape) != 2 or shape[0] != view.victims:
            raise EstimateError(f"proportions: expected shape ({view.victims}, K), got {tuple(shape)}")
        for name, tensor in (("low", self.low), ("high", self.high), ("present", self.present)):
            if tensor.shape != shape:
                raise EstimateError(f"{name}: expected shape {tuple(shape)}, got {tuple(tensor.shape)}")
        if self.present.dtype != torch.bool:
            raise EstimateError(f"present: expected torch.bool, got {self.present.dtype}")
        sums = self.proportions.double().sum(1)
        if not bool(((sums - 1).abs() < _SUM_TOLERANCE).all() and (self.proportions >= 0).all()):
            raise EstimateError(
                f"proportions: expected numbers of at least 0 that sum to one, got sums {sums.tolist()}"
            )
        outside = (self.low > self.proportions + _SUM_TOLERANCE) | (self.high < self.proportions - _SUM_TOLERANCE)
        if bool(outside.any()):
            raise EstimateError("low and high: expected an interval about every proportion")


class Attack(abc.ABC):
    """An attack: hyper-parameters in the constructor, a server view in, an estimate out.

    Attributes:
        name: the name under which results are written.
        threat_model: what it sees and knows.
        estimates: the type it returns.
    """

    name: ClassVar[str]
    threat_model: ClassVar[ThreatModel]
    estimates: ClassVar[type[Estimate]] = InteractionEstimate

    @final
    def __call__(self, view: ServerView, *, generator: torch.Generator) -> Estimate:
        """Checks that the view has what the attack needs, attacks, checks the shape of what comes back.

        Args:
            view: what the server saw.
            generator: the only source of randomness.

        Raises:
            ViewError: the view lacks something, or an update holds NaN or infinity.
            EstimateError: the attack is defective.
        """
        missing = view.missing(self.threat_model.needs)
        if missing:
            raise ViewError(f"attack {self.name!r} needs {', '.join(missing)}, which this recording does not have")
        for parameter, delta in view.deltas.items():
            if not bool(torch.isfinite(delta).all()):
                raise ViewError(f"round {view.round}: the deltas of {parameter!r} hold NaN or infinity")
        estimate = self.run(view, generator=generator)
        if not isinstance(estimate, self.estimates):
            raise EstimateError(f"{self.name}: expected {self.estimates.__name__}, got {type(estimate).__name__}")
        estimate.check(view)
        return estimate

    @abc.abstractmethod
    def run(self, view: ServerView, *, generator: torch.Generator) -> Estimate:
        """The attack itself; `__call__` has checked the view."""
