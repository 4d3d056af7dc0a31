"""A pool of candidate records, their losses and gradients, and what each round's updates say about each of them."""

import dataclasses
import functools
import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedleak.attacks.record_membership.estimates import RecordMembershipEstimate
from fedleak.client.algorithm import RecordAlgorithm
from fedleak.client.record_losses import record_gradients, record_losses
from fedleak.core.attack import Attack
from fedleak.core.errors import ViewError
from fedleak.core.estimates import Estimate
from fedleak.core.history import History
from fedleak.core.progress import report_progress
from fedleak.core.threat_model import ThreatModel
from fedleak.core.view import CANDIDATE_LABELS, CANDIDATES, RoundView, View

NEEDS = ("deltas", f"auxiliary:{CANDIDATES}", f"auxiliary:{CANDIDATE_LABELS}", RecordAlgorithm)
KNOWS = (
    "a pool of records with their classes, of which it asks who holds them, the better the more of the clients'"
    " training records it has; the clients' algorithm"
)
_SLOW = 1e9
"""Operations for a gradient that takes a tenth of a second or more."""
_SLOW_AT_ONCE = 8
"""Records at a time whose gradients are slow: between two reports of progress, and in memory where torch can batch."""
_NUMBERS_AT_ONCE = 2**24
"""Gradients' numbers in memory at a time: 64 MiB of float32, 128 MiB of float64."""


class GradientProgress:
    """Reports which share of the gradients of a round is computed.

    Args:
        total: number of gradients that are expected.
    """

    def __init__(self, total: int) -> None:
        self._total = max(total, 1)
        self._done = 0

    def add(self, count: int) -> None:
        """Reports some more."""
        self._done += count
        report_progress(self._done / self._total)


@dataclass(frozen=True)
class ServerPool:
    """Candidate records of a view.

    Attributes:
        records: ``(M, *shape)`` records.
        labels: ``(M,)`` classes.
        learner: the clients' algorithm.
        progress: counts the gradients that are computed; None for not at all.
    """

    records: Tensor
    labels: Tensor
    learner: RecordAlgorithm
    progress: "GradientProgress | None" = None

    @classmethod
    def of(cls, view: View) -> "ServerPool":
        """The pool of a view, which has one global model for all clients.

        Raises:
            ViewError: there are no candidates, or clients received models of their own.
        """
        if view.client_models is not None:
            raise ViewError("expected one global model for all clients, got a model for each")
        records, labels = view.auxiliary[CANDIDATES], view.auxiliary[CANDIDATE_LABELS].long()
        if not len(labels):
            raise ViewError("expected at least one candidate, got none")
        return cls(records, labels, view.require(RecordAlgorithm))

    def in_type(self, dtype: torch.dtype) -> "ServerPool":
        """The same pool with records in another type, for gradients of a model in that type."""
        recorded = self.records.dtype
        if recorded == dtype or not recorded.is_floating_point:
            return self
        return dataclasses.replace(self, records=self.records.to(dtype))

    def __len__(self) -> int:
        return len(self.labels)

    @functools.cached_property
    def sizes(self) -> Tensor:
        """``(M,)`` weight of each record in a batch's mean loss, over that of the average record."""
        sizes = self.learner.record_sizes(self.records)
        return sizes / sizes.mean().clamp(min=1e-30)

    def gradients(self, model: Mapping[str, Tensor], names: tuple[str, ...]) -> Iterator[tuple[Tensor, Tensor]]:
        """Yields positions ``(B,)`` and flat gradients ``(B, D)`` of some parameters, in chunks of bounded memory.

        Each is that of a batch whose other records are as large as the average.
        """
        width = sum(model[name].numel() for name in names)
        # Where one gradient takes seconds, progress is shown after each few.
        records_at_once = max(1, _NUMBERS_AT_ONCE // width)
        if self.learner.gradient_work(self.records) >= _SLOW:
            records_at_once = min(records_at_once, _SLOW_AT_ONCE)
        for part in torch.split(torch.arange(len(self)), records_at_once):
            by_parameter = record_gradients(self.learner, model, self.records[part], self.labels[part])
            flat = torch.cat([by_parameter[name].flatten(1) for name in names], dim=1)
            # A record weighs in the mean loss of its batch by its size.
            yield part, flat.mul_(self.sizes[part, None].to(flat))
            if self.progress is not None:
                self.progress.add(len(part))

    def duplicates(self) -> Tensor:
        """``(M,)`` bool: records of which the pool has another copy of the same class."""
        flat_records = self.records.flatten(1).double()
        flat = torch.cat([flat_records, self.labels[:, None].double()], dim=1)
        _, distinct_record, copies = torch.unique(flat, dim=0, return_inverse=True, return_counts=True)
        has_copy: Tensor = copies[distinct_record] > 1
        return has_copy


@dataclass(frozen=True)
class RoundStatistics:
    """What a round says about each candidate by one number; clients in the order of `senders`.

    Attributes:
        senders: ``(V,)`` pseudonyms.
        loss: ``(V, M)`` loss of each candidate under each client's model after its training.
        sent_loss: ``(M,)`` loss under the global model that was sent.
        products: ``(V, M)`` inner product of each update with minus each candidate's gradient at the sent model.
        norms: ``(M,)`` norm of these gradients.
        lengths: ``(V,)`` norm of the updates.
        class_shares: ``(V, K)`` weight of each class: least squares of the update on the classes' mean gradients.
        step_sums: ``(V,)`` sum of each client's step sizes; None if its optimizer scales gradients.
    """

    senders: Tensor
    loss: Tensor
    sent_loss: Tensor
    products: Tensor
    norms: Tensor
    lengths: Tensor
    class_shares: Tensor
    step_sums: Tensor | None

    @property
    def cosines(self) -> Tensor:
        """``(V, M)`` cosine of each update and minus each candidate's gradient; 0 where one of them is zero."""
        product_of_norms = self.lengths[:, None] * self.norms
        return self.products / product_of_norms.where(product_of_norms > 0, 1)


def flat_updates(
    view: RoundView, learner: RecordAlgorithm, dtype: torch.dtype | None = None
) -> tuple[Tensor, tuple[str, ...]]:
    """Updates ``(V, D)`` without weight decay, and the names of the parameters, which the gradients have too.

    Their type is `dtype`, or None for that of the recording.
    """
    dtype = dtype or recorded_type(view)
    # Clients may send other numbers too, and some send only the rows that changed.
    names = tuple(name for name in view.deltas if name not in view.row_parameters and name in view.model)
    decay = learner.decay_change(in_type(view.model, dtype), view.example_counts)
    parts = [(view.deltas[name].to(dtype) - decay[name]).flatten(1) for name in names]
    if not parts:
        raise ViewError("expected the deltas of the network's parameters, got none")
    return torch.cat(parts, dim=1).to(dtype), names


def recorded_type(view: RoundView) -> torch.dtype:
    """Type in which gradients are computed for a recording: float64 where it holds that, else float32."""
    recorded = {value.dtype for value in view.deltas.values()}
    return torch.float64 if torch.float64 in recorded else torch.float32


def in_type(model: Mapping[str, Tensor], dtype: torch.dtype) -> dict[str, Tensor]:
    """A model whose floating-point tensors have a type."""
    converted = dict(model)
    for name, tensor in model.items():
        if tensor.is_floating_point():
            converted[name] = tensor.to(dtype)
    return converted


def statistics(view: History) -> list[RoundStatistics]:
    """Statistics of every round, computed once for all attacks on a view."""
    return view.shared.value("statistics of candidates", lambda: _statistics(view, ServerPool.of(view)))


def _statistics(view: History, pool: ServerPool) -> list[RoundStatistics]:
    rounds = itertools.groupby(view.each_part(), lambda part: part.round)
    return [_together([_of_part(part, pool) for part in parts]) for _, parts in rounds]


def _together(parts: list[RoundStatistics]) -> RoundStatistics:
    """Statistics of a round that was read in parts."""
    if len(parts) == 1:
        return parts[0]
    # What is of a client is put together; the sent model, and what is of it alone, is the same in all parts.
    step_sums = [part.step_sums for part in parts if part.step_sums is not None]
    return dataclasses.replace(
        parts[0],
        senders=torch.cat([part.senders for part in parts]),
        loss=torch.cat([part.loss for part in parts]),
        products=torch.cat([part.products for part in parts]),
        lengths=torch.cat([part.lengths for part in parts]),
        class_shares=torch.cat([part.class_shares for part in parts]),
        step_sums=torch.cat(step_sums) if step_sums else None,
    )


def _of_part(view: RoundView, pool: ServerPool) -> RoundStatistics:
    updates, names = flat_updates(view, pool.learner)
    pool = pool.in_type(updates.dtype)
    # One pass over the gradients, of which only chunks are in memory.
    products = updates.new_zeros(len(updates), len(pool))
    norms = updates.new_zeros(len(pool))
    of_class = torch.nn.functional.one_hot(pool.labels).to(updates.dtype)
    class_means = updates.new_zeros(of_class.shape[1], updates.shape[1])
    for part, gradients in pool.gradients(view.model, names):
        products[:, part] = -(updates @ gradients.T)
        norms[part] = gradients.norm(dim=1)
        class_means += (of_class[part] / of_class.sum(0).clamp(min=1)).T @ gradients
    client_models = {}
    for name, parameter in view.sent_models().items():
        client_models[name] = parameter + view.deltas.get(name, torch.zeros(()))
    sent_model = {name: parameter[None] for name, parameter in view.model.items()}
    return RoundStatistics(
        senders=view.pseudonyms,
        loss=record_losses(pool.learner, client_models, pool.records, pool.labels),
        sent_loss=record_losses(pool.learner, sent_model, pool.records, pool.labels)[0],
        products=products,
        norms=norms,
        lengths=updates.norm(dim=1),
        # The update is about minus a sum of the classes' mean gradients.
        class_shares=torch.linalg.lstsq(class_means.double().T, -updates.double().T).solution.T,
        step_sums=pool.learner.step_sums(view.example_counts),
    )


class PoolAttack(Attack):
    """Base class of attacks that score every client and candidate, round after round."""

    family = "record-membership"
    estimates: ClassVar[type[Estimate]] = RecordMembershipEstimate
    cost = "milliseconds per record and round"
    threat_model = ThreatModel(sees="each client's update of every round", knows=KNOWS, needs=NEEDS)


def averaged(rounds: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    """Pseudonyms ``(U,)`` and mean scores ``(U, M)`` over the rounds in which each client sent.

    Each round has pseudonyms ``(V,)`` and scores ``(V, M)``.
    """
    pseudonyms = torch.cat([round_pseudonyms for round_pseudonyms, _ in rounds])
    scores = torch.cat([round_scores.double() for _, round_scores in rounds])
    senders, sender_of_row = torch.unique(pseudonyms, return_inverse=True)
    total = torch.zeros(len(senders), scores.shape[1], dtype=torch.float64)
    total.index_add_(0, sender_of_row, scores)
    rounds_of_sender = sender_of_row.bincount()
    return senders, total / rounds_of_sender[:, None]


def membership(senders: Tensor, scores: Tensor, view: History) -> RecordMembershipEstimate:
    """Estimate of an attack that expects nothing of itself."""
    return RecordMembershipEstimate(
        senders=senders,
        scores=scores,
        predicted=torch.full((len(senders),), torch.nan),
        duplicates=ServerPool.of(view).duplicates(),
    )
