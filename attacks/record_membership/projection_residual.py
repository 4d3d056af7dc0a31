"""Membership by the residual of a record's hidden states outside the row space of the update of adapters."""

import math

import torch
from torch import Tensor

from fedleak.attacks.record_membership.estimates import RecordMembershipEstimate
from fedleak.attacks.record_membership.pool import KNOWS, NEEDS, PoolAttack, ServerPool, averaged, membership
from fedleak.attacks.words.adapter_sums import change_error
from fedleak.attacks.words.joint_pursuit import VectorSums
from fedleak.client.pretrained import PretrainedAlgorithm
from fedleak.core.errors import ViewError
from fedleak.core.history import History
from fedleak.core.progress import with_progress
from fedleak.core.threat_model import ThreatModel
from fedleak.core.view import RoundView

_AT_ONCE = 256
_PLACES_AT_ONCE = 2**13
"""Records and places of records whose hidden states are in memory together."""


class ProjectionResidual(PoolAttack):
    """Share of a record's hidden states outside the row space of the change of the adapters that read them.

    The change of A has rows that are sums of the layer's inputs, so the inputs of a client's records lie in its row
    space as long as they are fewer than the rows; beyond, the row space is a part of what they span, and says little.
    The score is minus the mean over places and adapted layers, with the states under the model that was sent. A layer
    whose A did not move, or whose rows span everything, is left out.

    Threat model: passive server that sees each client's update.

    Raises:
        ViewError: no A moved, as in the first step after B was zero, or where it is frozen.

    References:
        [Deng26], whose code takes one place and the layer with the least residual (`ProjRes`): all layers and places
        and their mean are this project's.

    Example:
        >>> import torch
        >>> from fedleak.attacks.record_membership import ProjectionResidual
        >>> from fedleak.attacks.record_membership.toy import toy
        >>> view, truth = toy("texts")
        >>> estimate = ProjectionResidual()(view, generator=torch.Generator().manual_seed(0))
        >>> round(float(estimate.score(view, truth).metrics["auc"].mean()), 2)
        1.0
    """

    name = "projection-residual"
    references = ("Deng26",)
    for_comparison = True  # candidate-fit is at least as good in all 60 cells
    threat_model = ThreatModel(
        sees="each client's update of the adapters", knows=KNOWS, needs=(*NEEDS[:-1], PretrainedAlgorithm)
    )

    def run(self, view: History, *, generator: torch.Generator) -> RecordMembershipEstimate:
        pool = ServerPool.of(view)
        rounds = [(part.pseudonyms, _scores(part, pool)) for part in view.each_part()]
        senders, scores = averaged(rounds)
        return membership(senders, scores, view)


def _scores(view: RoundView, pool: ServerPool) -> Tensor:
    """``(V, M)`` minus the mean residual."""
    algorithm = view.require(PretrainedAlgorithm)
    minus_residuals = torch.zeros(view.victims, len(pool), dtype=torch.float64)
    layers = torch.zeros(view.victims, 1, dtype=torch.float64)
    places = algorithm.places(pool.records[:1]).shape[1]
    records_at_once = max(1, min(_AT_ONCE, _PLACES_AT_ONCE // places))
    parts = torch.split(torch.arange(len(pool)), records_at_once)
    for part in with_progress(parts):
        records = pool.records[part]
        for layer in algorithm.adapted_inputs(view.model, records):
            trained = [name for name, _ in layer.adapters if name in view.deltas]
            if not trained:
                continue
            # Hidden states of all places of all records that are no padding, and whose record each is of.
            states = layer.vectors.reshape(len(part), -1, layer.vectors.shape[-1])
            is_read = algorithm.places(records).expand(-1, states.shape[1])
            vectors = states[is_read]
            record_of_vector = is_read.nonzero()[:, 0]
            for victim in range(view.victims):
                rows = torch.cat([view.deltas[name][victim].double() for name in trained])
                error = math.hypot(*(change_error(view, name, victim) for name in trained))
                if float(rows.norm()) <= error:
                    continue
                # The part outside the row space is the sine where the part inside is the cosine.
                shares = VectorSums(rows, vectors, error).span_shares()
                residuals = (1 - shares.square()).clamp(min=0).sqrt()
                sums = torch.zeros(len(part), dtype=torch.float64).index_add_(0, record_of_vector, residuals)
                minus_residuals[victim, part] -= sums / is_read.sum(1).clamp(min=1)
                layers[victim] += part[0] == 0  # each layer counts once, with the first part of the pool
    if not bool(layers.any()):
        raise ViewError("expected adapters whose A moved; in the first step from B = 0 and with a frozen A it does not")
    return minus_residuals / layers.clamp(min=1)
