"""Federated training of a small transformer decoder on texts.

References:
    [Radford19], section 2.3, for the network; [Petrov24], for the attack on its updates.
"""

import torch
from torch import Tensor

from fedleak.client.decoder import BODY, Decoder, DecoderAlgorithm, DecoderOptions, draw_weights
from fedleak.client.engine.local_hyperparameters import LocalTraining
from fedleak.client.text import last_states
from fedleak.core.seeding import PERSISTENT, generator_for
from fedleak.modules.learners.text import TextLearner
from fedleak.training.federated import Federation, Unpack

DECODER_LOCAL = LocalTraining(learning_rate=0.1, batch_size=32)
"""Local training by default."""


class FederatedDecoder(TextLearner):
    """Federated transformer decoder that predicts the next word or a rating.

    Args:
        network: sizes and task.
        local: how clients train.
        federation: arguments of `FederatedModule`.
    """

    options: DecoderOptions
    kind = DecoderAlgorithm
    body = BODY
    decoder: Decoder

    def __init__(
        self,
        *,
        network: DecoderOptions = DecoderOptions(),  # noqa: B008 - frozen
        local: LocalTraining = DECODER_LOCAL,
        **federation: Unpack[Federation],
    ) -> None:
        super().__init__(network=network, local=local, **federation)
        generator = generator_for(self.seed, "global-model", PERSISTENT)
        draw_weights(self.decoder, generator)
        with torch.no_grad():
            for value in (self.embedding.weight, self.output.weight):
                value.normal_(std=0.02, generator=generator)
            self.output.bias.zero_()

    def forward(self, tokens: Tensor) -> Tensor:
        """``(B, L)`` token numbers -> logits ``(B, L - 1, V)`` of the words after the first, or ratings ``(B,)``."""
        predicted: Tensor
        if self.options.task == "rating":
            states = self.decoder(self.embedding(tokens)).transpose(0, 1)
            predicted = self.output(last_states(states, tokens.T))[:, 0]
        else:
            predicted = self.output(self.decoder(self.embedding(tokens[:, :-1])))
        return predicted
