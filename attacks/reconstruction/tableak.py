"""TabLeak: gradient matching for rows of a table, with softmax for categories and a pooled ensemble."""

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from fedleak.attacks.composition.output_counts import class_counts
from fedleak.attacks.reconstruction.estimates import ReconstructionAttack, ReconstructionEstimate, reconstruction
from fedleak.attacks.reconstruction.gradient_matching import labels_of
from fedleak.attacks.reconstruction.table_rows import matching
from fedleak.client.network import NetworkAlgorithm
from fedleak.core.errors import InputError, ViewError
from fedleak.core.ranges import PositiveFloat, PositiveInt
from fedleak.core.table_columns import COLUMNS, TableColumns
from fedleak.core.threat_model import ThreatModel
from fedleak.core.view import RoundView

if TYPE_CHECKING:
    from fedleak.modules.attackers.image_matching import ImageMatching

_STEP = 0.06
"""Learning rate of Adam, as published."""


@dataclass(frozen=True, kw_only=True)
class TabLeak(ReconstructionAttack):
    """TabLeak: rows whose gradient, or simulated training, has the direction of the update.

    Each row is searched as free numbers z, from a uniform start in [-1, 1]: a category's inputs are ``softmax(z)``, a
    number is ``lowest + (highest - lowest) sigmoid(z)``. Adam on the signs of the gradient makes steps of 0.06 on one
    minus the cosine of the updates. The 30 members of an ensemble are aligned with the member whose nearest possible
    rows fit best, by the assignment of the most equal columns, and pooled by the median of each input. All members and
    victims are solved at once. After one step the gradient is matched, after several the clients' training is simulated
    in an order of batches of its own, as published for FedAvg.

    The publication takes the labels as known; here they are those of `OutputCounts`, which is exact for one step of
    many settings. Its numbers are right within 0.319 standard deviations, here within a step of the column. Its measure
    of certainty, the entropy of the members, is left out: it certifies nothing.

    Threat model: passive server, one round; knows the network, the columns' ranges and categories, not the examples.

    Args:
        max_iter: iterations, 1,500 as published.
        members: size of the ensemble, 30 as published.
        minutes: time limit of a view, after which what is found is pooled.

    References:
        [Vero23], and github.com/eth-sri/tableak (commit eb0c505), experiments 46 and 52.

    Example:
        >>> import torch
        >>> from fedleak.attacks.reconstruction import TabLeak
        >>> from fedleak.attacks.reconstruction.toy import toy
        >>> view, truth = toy("table")
        >>> estimate = TabLeak(max_iter=150, members=4)(view, generator=torch.Generator().manual_seed(0))
        >>> float(estimate.score(view, truth).metrics["categories"].mean()) > 0.9
        True
    """

    name = "tableak"
    references = ("Vero23",)
    for_comparison = True  # linear-inversion is at least as good in all 24 cells
    slow = True
    audited_victims = 2
    cost = "minutes per victim"
    threat_model = ThreatModel(
        sees="the update of the whole model",
        knows="the clients' training algorithm and the table's columns",
        needs=("deltas", "model", NetworkAlgorithm, f"auxiliary:{COLUMNS}"),
    )
    max_iter: PositiveInt = 1500
    members: PositiveInt = 30
    minutes: PositiveFloat = 10.0

    def run(self, view: RoundView, *, generator: torch.Generator) -> ReconstructionEstimate:
        from fedleak.modules.attackers.image_matching import ImageMatching

        columns = TableColumns.of(view.auxiliary[COLUMNS])
        labels = labels_of(class_counts(view, generator=generator))
        counts = (labels >= 0).sum(1)
        algorithm = view.require(NetworkAlgorithm)
        shape = tuple(getattr(algorithm, "image_shape", (len(columns.column),)))
        every = torch.arange(view.victims).repeat_interleave(self.members)
        try:
            module = ImageMatching(
                view.select(every),
                labels[every],
                shape=shape,
                generator=generator,
                simulate=bool((algorithm.steps(view.example_counts) > 1).any()),
                objective="cosine",
                solver="signed-adam",
                total_variation=0.0,
                step=_STEP,
                max_iter=self.max_iter,
            )
            free = self._solve(module, columns, shape, generator)
        except InputError as error:  # the clients' local training cannot be differentiated
            raise ViewError(str(error)) from None
        return self._pooled(module, columns, free, labels, counts, shape)

    def _solve(
        self, module: "ImageMatching", columns: TableColumns, shape: tuple[int, ...], generator: torch.Generator
    ) -> Tensor:
        """``(V * members, M, D)`` free numbers."""
        from fedleak.modules.attackers.image_matching import in_units
        from fedleak.modules.attackers.input_gradients import step_examples

        size = (*module.labels.shape, len(columns.column))
        free = (2 * torch.rand(size, generator=generator) - 1).to(next(iter(module.models.values())).dtype)
        module.batches = step_examples(module.algorithm, module.counts, generator=generator)
        solver = torch.optim.Adam([free], lr=_STEP)
        end = time.monotonic() + 60 * self.minutes
        for _ in range(self.max_iter):
            if time.monotonic() > end:
                break
            gradient = torch.zeros_like(free)
            for victims in module.chunks:
                with torch.enable_grad():
                    numbers = free[victims].requires_grad_()
                    rows = possible_inputs(numbers, columns).reshape(*numbers.shape[:2], *shape)
                    losses, _ = module.losses(victims, in_units(rows))
                    (gradient[victims],) = torch.autograd.grad(losses.sum(), numbers)
            free.grad = gradient.nan_to_num().sign_()
            solver.step()
        return free

    def _pooled(
        self,
        module: "ImageMatching",
        columns: TableColumns,
        free: Tensor,
        labels: Tensor,
        counts: Tensor,
        shape: tuple[int, ...],
    ) -> ReconstructionEstimate:
        from fedleak.modules.attackers.image_matching import in_units

        soft_rows = possible_inputs(free, columns)
        values = columns.decode(soft_rows.flatten(0, 1)).reshape(*soft_rows.shape[:2], -1)
        # The best member is the one whose nearest possible rows fit the update best.
        hard_rows = columns.encode(values.flatten(0, 1)).to(soft_rows).reshape(*soft_rows.shape[:2], *shape)
        losses = [module.losses(victims, in_units(hard_rows[victims]))[0].detach() for victims in module.chunks]
        best = torch.cat(losses).reshape(-1, self.members).argmin(1)
        records = []
        for victim, count in enumerate(counts.tolist()):
            of_victim = slice(victim * self.members, (victim + 1) * self.members)
            member_rows = soft_rows[of_victim, :count]
            member_values = values[of_victim, :count]
            # Members have their rows in orders of their own: each is put in that of the best one.
            aligned = torch.zeros_like(member_rows)
            if count:
                for member in range(self.members):
                    chosen, of = matching(member_values[member], member_values[best[victim]], columns)
                    aligned[member, of] = member_rows[member, chosen]
            pooled = columns.encode(columns.decode(aligned.median(0).values))
            records.append(pooled.float().reshape(count, *shape))
        classes = [client_labels[:count] for client_labels, count in zip(labels, counts.tolist(), strict=True)]
        return reconstruction(records, labels=classes)


def possible_inputs(free: Tensor, columns: TableColumns) -> Tensor:
    """``(..., D)`` inputs of free numbers ``(..., D)``: softmax in a category, a number by sigmoid in its range."""
    lowest = columns.origin + columns.lowest * columns.step
    highest = columns.origin + columns.highest * columns.step
    numbers = lowest.to(free) + (highest - lowest).to(free) * free.sigmoid()
    parts = []
    for inputs in columns.groups:
        is_category = bool(columns.category[inputs[0]])
        parts.append(free[..., inputs].softmax(-1) if is_category else numbers[..., inputs])
    return torch.cat(parts, dim=-1)
