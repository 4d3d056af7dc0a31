"""Privacy budget spent by the clients: local DP of their updates, composed over rounds."""

import logging
import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from lightning import Callback, LightningModule, Trainer
from torch import Tensor

from fedleak.callbacks.delta_recorder import federated
from fedleak.client.engine.local_hyperparameters import LocalTraining
from fedleak.core.errors import require
from fedleak.core.gaussian_budget import composed_epsilon
from fedleak.defenses.base import Defense
from fedleak.defenses.local_dp import LocalDP

_logger = logging.getLogger(__name__)


class PrivacyBudget(Callback):
    """Logs ``privacy/epsilon`` at a given delta for the client that participated most often.

    A send with local DP is a Gaussian mechanism with noise multiplier ``z = sigma / sensitivity``. Sends compose
    exactly: mechanisms with multipliers ``z_i`` are together as private as one with ``z = (sum 1 / z_i^2)^(-1/2)``
    (Dong, Roth and Su 2022, corollary 3.3), whose epsilon dp-accounting computes (Balle and Wang 2018, equation 6).
    Subsampling amplifies nothing against a server that chooses who takes part: it knows the participants, and
    amplification needs that the sample is secret from the adversary. Nothing is credited for a sum over clients
    (`SecureSum`) either: every client of the cohort counts, whether the recording holds it or not. And a
    client that holds its update back counts as one that sends it, since its silence depends on its data.

    ``privacy/epsilon_example`` is that of replacing one training example, if clients train privately
    (``local.example_clip``): a pass over the examples is one Gaussian mechanism with half the noise multiplier, because
    each example is in one mini-batch, and every independent batch (``local.updates``) counts. Nothing is credited for
    the random order, which is drawn from the public seed.

    Epsilon covers replacement of a client's whole training data, for the parameters that a `LocalDP` covers. If other
    parameters are sent too, ``privacy/epsilon`` is infinite and ``privacy/epsilon_covered`` holds for the covered ones.

    Args:
        delta: probability with which the composed guarantee may fail, in (0, 1).

    References:
        [Dong22], corollary 3.3.
        [Balle18a], equation 6.
        [Balle18b].
    """

    def __init__(self, *, delta: float = 1e-5) -> None:
        way_out = "Give a number well below 1 / number of clients, e.g. 1e-5."
        require(0 < delta < 1, "PrivacyBudget.delta between 0 and 1, both excluded", f"{delta:g}", way_out)
        self.delta = delta
        self.participations = torch.zeros(0, dtype=torch.int64)
        """``(clients,)`` number of rounds of each client, the same on every rank."""

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Warns about parameters that epsilon does not cover."""
        module = federated(pl_module, "PrivacyBudget")
        uncovered = uncovered_parameters(module.defenses, tuple(module.public_parameters()))
        if uncovered and trainer.is_global_zero:
            _logger.warning("privacy/epsilon is infinite: no local DP covers %s", ", ".join(uncovered))

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Counts the round's participants and logs epsilon."""
        module = federated(pl_module, "PrivacyBudget")
        self.count(outputs["record"].participants, world_size=trainer.world_size)
        epsilon_covered = self.spent(module.defenses)
        # What no local DP covers is sent as it is, which no finite epsilon bounds.
        uncovered = uncovered_parameters(module.defenses, tuple(module.public_parameters()))
        epsilon = math.inf if uncovered else epsilon_covered
        pl_module.log("privacy/epsilon", epsilon, prog_bar=True, batch_size=1)
        pl_module.log("privacy/epsilon_covered", epsilon_covered, batch_size=1)
        if module.local.example_clip is not None:
            pl_module.log("privacy/epsilon_example", self.spent_on_examples(module.local), batch_size=1)

    def count(self, clients: Tensor, *, world_size: int = 1) -> None:
        """Adds one round with this rank's clients ``(C,)``, over all ranks."""
        # Each rank counts its own clients; the tables of all ranks get the size of the largest before they are added.
        largest = int(clients.max()) + 1 if clients.numel() else 0
        size = torch.tensor(largest, device=clients.device)
        if world_size > 1:
            torch.distributed.all_reduce(size, op=torch.distributed.ReduceOp.MAX)
        counts = torch.bincount(clients, minlength=int(size))
        if world_size > 1:
            torch.distributed.all_reduce(counts)
        total = torch.zeros(max(int(size), self.participations.numel()), dtype=torch.int64)
        total[: self.participations.numel()] += self.participations
        total[: int(size)] += counts.cpu()
        self.participations = total

    def spent(self, defenses: Sequence[Defense]) -> float:
        """Epsilon of the client that participated most often."""
        rounds = self._most_rounds()
        # z = noise / sensitivity of each local DP, which a client applies once a round.
        multipliers = []
        for defense in defenses:
            if isinstance(defense, LocalDP) and defense.active:
                multipliers.append(defense.noise_scale / defense.sensitivity)
        return composed_epsilon(tuple(multipliers), rounds, self.delta)

    def spent_on_examples(self, local: LocalTraining) -> float:
        """Epsilon of replacing an example of the client that participated most often."""
        rounds = self._most_rounds()
        passes = local.epochs if local.updates is None else local.updates
        # Replacing an example changes a sum of clipped gradients by up to twice the clip, so z halves.
        multipliers: tuple[float, ...] = ()
        if local.noise_multiplier:
            multipliers = (local.noise_multiplier / 2,)
        return composed_epsilon(multipliers, rounds * passes, self.delta)

    def _most_rounds(self) -> int:
        """Rounds of the client that participated most often."""
        if not self.participations.numel():
            return 0
        return int(self.participations.max())

    def state_dict(self) -> dict[str, Any]:
        """Counts of participations."""
        return {"participations": self.participations.clone()}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Restores the counts."""
        self.participations = state_dict["participations"].clone()


def uncovered_parameters(defenses: Sequence[Defense], parameters: tuple[str, ...]) -> tuple[str, ...]:
    """Public parameters that no active local DP covers."""
    covered = set[str]()
    for defense in defenses:
        if isinstance(defense, LocalDP) and defense.active:
            covered.update(defense.covered(parameters))
    return tuple(name for name in parameters if name not in covered)
