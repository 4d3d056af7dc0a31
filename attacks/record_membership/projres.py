"""Membership by the residual of one place of a text outside the row space of an update of adapters, as published."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from fedleak.attacks.linear_algebra import row_space
from fedleak.attacks.record_membership.estimates import RecordMembershipEstimate
from fedleak.attacks.record_membership.pool import KNOWS, NEEDS, PoolAttack, ServerPool, averaged, membership
from fedleak.attacks.words.adapter_sums import change_error
from fedleak.client.adapted_layers import LayerInputs
from fedleak.client.pretrained import PretrainedAlgorithm
from fedleak.core.errors import ViewError
from fedleak.core.history import History
from fedleak.core.progress import with_progress
from fedleak.core.threat_model import ThreatModel
from fedleak.core.view import RoundView

_AT_ONCE = 16
"""Records whose hidden states are in memory together."""
_TOLERANCE = 0.5
"""Part of a number of the hidden state by which the projection may miss it: ``rtol`` of the authors' code."""


@dataclass(frozen=True)
class ProjRes(PoolAttack):
    """How far the hidden state that a class is read from lies outside the row space of the change of an adapter.

    Of every text one place counts: that which the head of a classifier reads, the first of an encoder and the last of a
    decoder; of a language model, the last that predicts a word. Its state enters an adapter that moved; the projection
    on the rows of the adapter's change may miss each number of it by half of that number. The score is minus the
    absolute value of the largest excess over that, in the layer where it is least: so the code of the authors computes
    it, of the gradient. Adapters there have a row for every second number of a hidden state (`AdapterOptions.rank`).
    The queries of the last layer are read at that place alone, so members of a batch with fewer texts than rows are
    told exactly there, however long they are; `projection-residual` asks all places of all layers.

    Threat model: passive server that sees each client's update.

    Attributes:
        solver: least squares ``stable``, by the singular values above rounding; or ``published``, by a QR decomposition
            in float32, which divides by what is left of directions that the rows do not have.
        first_layer: whether the first adapted layer counts; the authors leave it out for LoRA, where it reads the token
            alone.

    Raises:
        ViewError: no A moved, as in the first step after B was zero, or where it is frozen.

    References:
        [Deng26], of which the abstract and the code were read, not the paper.

    Example:
        >>> import torch
        >>> from fedleak.attacks.record_membership import ProjRes
        >>> from fedleak.attacks.record_membership.toy import toy
        >>> view, truth = toy("texts")
        >>> estimate = ProjRes()(view, generator=torch.Generator().manual_seed(0))
        >>> round(float(estimate.score(view, truth).metrics["auc"].mean()), 2)
        0.83
    """

    name: ClassVar[str] = "projres"
    references: ClassVar[tuple[str, ...]] = ("Deng26",)
    threat_model: ClassVar[ThreatModel] = ThreatModel(
        sees="each client's update of the adapters", knows=KNOWS, needs=(*NEEDS[:-1], PretrainedAlgorithm)
    )

    solver: Literal["stable", "published"] = "stable"
    first_layer: bool = False

    def run(self, view: History, *, generator: torch.Generator) -> RecordMembershipEstimate:
        pool = ServerPool.of(view)
        rounds = [(part.pseudonyms, self._scores(part, pool)) for part in view.each_part()]
        senders, scores = averaged(rounds)
        return membership(senders, scores, view)

    def _scores(self, view: RoundView, pool: ServerPool) -> Tensor:
        """``(V, M)`` minus the absolute value of the least excess over the layers."""
        algorithm = view.require(PretrainedAlgorithm)
        least = torch.full((view.victims, len(pool)), torch.inf, dtype=torch.float64)
        for part in with_progress(torch.split(torch.arange(len(pool)), _AT_ONCE)):
            records = pool.records[part]
            place = algorithm.read_place(records)
            layers = algorithm.adapted_inputs(view.model, records)
            for number, layer in enumerate(layers):
                if number == 0 and len(layers) > 1 and not self.first_layer:
                    continue
                states = layer.vectors[torch.arange(len(part)), place]
                for victim in range(view.victims):
                    excess = self._excess(view, layer, victim, states)
                    # In the authors' script for an encoder, layers are compared by absolute values.
                    if not algorithm.reads_last:
                        excess = excess.abs()
                    least[victim, part] = torch.minimum(least[victim, part], excess)
        if not bool(least.isfinite().any()):
            raise ViewError(
                "expected adapters behind the first layer whose A moved; in the first step from B = 0 and with a frozen"
                " A it does not"
            )
        return -least.abs()

    def _excess(self, view: RoundView, layer: LayerInputs, victim: int, states: Tensor) -> Tensor:
        """``(N,)`` largest excess of each state ``(N, d)`` over the tolerance; infinite where no adapter moved."""
        excess = torch.full((len(states),), torch.inf, dtype=torch.float64)
        for name, _ in layer.adapters:
            if name not in view.deltas:
                continue
            rows = view.deltas[name][victim]
            error = change_error(view, name, victim)
            if float(rows.norm()) <= error:
                continue
            miss = (self._projected(rows, states, error) - states).abs() - _TOLERANCE * states.abs()
            # A division by nothing says nothing.
            of_adapter = miss.amax(1).double().nan_to_num(nan=torch.inf, posinf=torch.inf)
            excess = torch.minimum(excess, of_adapter)
        return excess

    def _projected(self, rows: Tensor, states: Tensor, error: float) -> Tensor:
        """States ``(N, d)`` projected on the space of rows ``(r, d)`` that are known up to an error."""
        if self.solver == "stable":
            singular_values, directions = row_space(rows.double())
            basis = directions[singular_values > error]
            return (states.double() @ basis.T @ basis).to(states)
        q, r = torch.linalg.qr(rows.float().T, mode="reduced")
        coefficients: Tensor = torch.linalg.solve_triangular(r, q.T @ states.float().T, upper=True)
        return (rows.float().T @ coefficients).T
