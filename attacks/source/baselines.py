"""Baseline of source inference: chance."""

from typing import ClassVar

import torch

from attacks.estimates import Estimate
from attacks.record_membership.baselines import POOL
from attacks.record_membership.pool import PoolAttack
from attacks.source.estimates import SourceEstimate
from protocol.history import History
from protocol.threat_model import ThreatModel
from protocol.view import CANDIDATE_LABELS


class RandomSource(PoolAttack):
    """Random client for each record.

    Threat model: none; the chance level of source inference.

    References:
        This project.
    """

    name = "random-source"
    family = "source"
    baseline = True
    estimates: ClassVar[type[Estimate]] = SourceEstimate
    threat_model = ThreatModel(sees="no update", knows="a pool of records", needs=POOL)

    def run(self, view: History, *, generator: torch.Generator) -> SourceEstimate:
        senders, count = torch.unique(view.pseudonyms), len(view.auxiliary[CANDIDATE_LABELS])
        return SourceEstimate(
            senders=senders, scores=torch.rand(len(senders), count, generator=generator, dtype=torch.float64)
        )
