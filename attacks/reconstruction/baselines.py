"""Baseline of reconstruction: the mean auxiliary record, without a look at the update."""

from dataclasses import dataclass

import torch

from attacks.reconstruction.base import ReconstructionAttack, reconstruction
from attacks.reconstruction.estimates import ReconstructionEstimate
from protocol.threat_model import ThreatModel
from protocol.view import RoundView


@dataclass(frozen=True, kw_only=True)
class MeanRecord(ReconstructionAttack):
    """Baseline: every training example is guessed to be the mean of the adversary's auxiliary images.

    Its PSNR is what a blurred picture without any leak reaches; identification is at chance.

    Threat model: passive server, which holds auxiliary images and does not look at the update.

    References:
        This project.
    """

    name = "mean-image"
    baseline = True
    threat_model = ThreatModel(
        sees="how many examples the client reports",
        knows="auxiliary images of the same kind",
        needs=("auxiliary:images",),
    )

    def run(self, view: RoundView, *, generator: torch.Generator) -> ReconstructionEstimate:
        mean = view.auxiliary["images"].float().mean(0)
        return reconstruction([mean.expand(int(count), *mean.shape) for count in view.example_counts])
