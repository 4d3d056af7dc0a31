"""The public algorithm of devices that learn from texts: what the server can simulate, knowing no device."""

from collections.abc import Mapping

import torch
from torch import Tensor

from datamodules.cohort import Cohort
from datamodules.devices.word_rows import text_cohort
from modules.engine.fast.lstm import LSTM
from modules.engine.local_hyperparameters import LocalTraining
from modules.engine.local_training import train_clients
from modules.learners.text_options import TextOptions
from modules.learners.text_task import EMBEDDING, OUTPUT, TextTask


class TextLearner:
    """Simulates devices; see `protocol.simulators.ExampleSimulator`.

    Args:
        network: what they train.
        local: how they train.
    """

    def __init__(self, *, network: TextOptions, local: LocalTraining) -> None:
        self.network = network
        self.local = local
        self.task = TextTask(network)

    def network_shapes(self, held: Mapping[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
        """Shape of every parameter of the network, by name."""
        words, hidden = self.network.embedding, self.network.hidden
        return {
            EMBEDDING: (self.network.vocabulary, words),
            f"{LSTM}.weight_ih_l0": (4 * hidden, words),
            f"{LSTM}.weight_hh_l0": (4 * hidden, hidden),
            f"{LSTM}.bias_ih_l0": (4 * hidden,),
            f"{LSTM}.bias_hh_l0": (4 * hidden,),
            f"{OUTPUT}.weight": (self.network.outputs, hidden),
            f"{OUTPUT}.bias": (self.network.outputs,),
        }

    def simulate_examples(
        self,
        model: Mapping[str, Tensor],
        features: Tensor,
        labels: Tensor,
        examples: Tensor,
        *,
        generator: torch.Generator,
    ) -> dict[str, Tensor]:
        seed = int(torch.randint(2**62, (), generator=generator))
        cohort: Cohort = text_cohort(0, torch.arange(len(examples)), features, labels, examples)
        deltas = train_clients(self.task, model, {}, cohort, self.local, seed=seed).deltas
        rows = cohort.rows[EMBEDDING]
        whole = torch.zeros(len(rows), *model[EMBEDDING].shape)
        client, place = (rows >= 0).nonzero(as_tuple=True)
        whole[client, rows[client, place]] = deltas[EMBEDDING][client, place]
        return {**deltas, EMBEDDING: whole}
