"""Membership by the residual of a record's hidden states outside the row space of the update of adapters."""

import math

import torch
from torch import Tensor

from fedleak.attacks.record_membership.estimates import RecordMembershipEstimate
from fedleak.attacks.record_membership.pool import KNOWS, NEEDS, Pool, PoolAttack, averaged, membership
from fedleak.attacks.words.adapter_sums import change_error
from fedleak.attacks.words.joint_pursuit import Sums
from fedleak.client.pretrained import PretrainedAlgorithm
from fedleak.core.errors import ViewError
from fedleak.core.history import History
from fedleak.core.progress import with_progress
from fedleak.core.threat_model import ThreatModel
from fedleak.core.view import RoundView

_AT_ONCE = 256
"""Records whose hidden states are in memory together."""


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
        Deng et al., "Toward Efficient Membership Inference Attacks against Federated Large Language Models: A
        Projection Residual Approach", IEEE S&P 2026, arXiv:2604.21197, of which the abstract was read, not the paper:
        the layers, the places and their mean are this project's.
    """

    name = "projection-residual"
    references = ("ProjRes",)
    for_comparison = True  # candidate-fit is at least as good in all 60 cells
    threat_model = ThreatModel(
        sees="each client's update of the adapters", knows=KNOWS, needs=(*NEEDS[:-1], PretrainedAlgorithm)
    )

    def run(self, view: History, *, generator: torch.Generator) -> RecordMembershipEstimate:
        pool = Pool.of(view)
        return membership(*averaged([(one.pseudonyms, _scores(one, pool)) for one in view.each_part()]), view)


def _scores(view: RoundView, pool: Pool) -> Tensor:
    """``(V, M)`` minus the mean residual."""
    algorithm = view.require(PretrainedAlgorithm)
    total = torch.zeros(view.victims, len(pool), dtype=torch.float64)
    counted = torch.zeros(view.victims, 1, dtype=torch.float64)
    parts = torch.split(torch.arange(len(pool)), _AT_ONCE)
    for part in with_progress(parts):
        records = pool.records[part]
        for layer in algorithm.adapted_inputs(view.model, records):
            moved = [name for name, _ in layer.adapters if name in view.deltas]
            if not moved:
                continue
            states = layer.vectors.reshape(len(part), -1, layer.vectors.shape[-1])
            places = algorithm.places(records).expand(-1, states.shape[1])
            vectors, record = states[places], places.nonzero()[:, 0]
            for victim in range(view.victims):
                rows = torch.cat([view.deltas[name][victim].double() for name in moved])
                error = math.hypot(*(change_error(view, name, victim) for name in moved))
                if float(rows.norm()) <= error:
                    continue
                shares = Sums(rows, vectors, error).span_shares()
                left = (1 - shares.square()).clamp(min=0).sqrt()
                sums = torch.zeros(len(part), dtype=torch.float64).index_add_(0, record, left)
                total[victim, part] -= sums / places.sum(1).clamp(min=1)
                counted[victim] += part[0] == 0
    if not bool(counted.any()):
        raise ViewError("expected adapters whose A moved; in the first step from B = 0 and with a frozen A it does not")
    return total / counted.clamp(min=1)
