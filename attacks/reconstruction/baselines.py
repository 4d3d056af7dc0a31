"""Baselines of reconstruction without a look at the update: the mean auxiliary image, and sentences of others."""

from dataclasses import dataclass

import torch

from attacks.re_identification.simulated import FEATURES
from attacks.reconstruction.estimates import ReconstructionAttack, ReconstructionEstimate, reconstruction
from protocol.errors import ViewError
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


@dataclass(frozen=True, kw_only=True)
class RandomSentences(ReconstructionAttack):
    """Baseline: sentences drawn at random from the texts that the adversary has, as many as the client reports.

    Its ROUGE is that of any two texts of the same language; its exact sentences are phrases that everybody uses.

    Threat model: passive server, which holds texts of users and does not look at the update.

    References:
        This project.
    """

    name = "random-sentences"
    baseline = True
    threat_model = ThreatModel(
        sees="how many examples the client reports", knows="texts of users", needs=(f"auxiliary:{FEATURES}",)
    )

    def run(self, view: RoundView, *, generator: torch.Generator) -> ReconstructionEstimate:
        texts = view.auxiliary[FEATURES]
        if texts.dim() != 2 or texts.is_floating_point():
            raise ViewError("expected texts as word numbers, got other examples")
        return reconstruction(
            [texts[torch.randint(len(texts), (int(count),), generator=generator)] for count in view.example_counts]
        )
