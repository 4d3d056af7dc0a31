"""Clients of the decoder train as one network of torch's own layers does."""

import pytest
import torch
from torch.func import grad
from torch.nn.functional import cross_entropy

from fedleak.attacks.reconstruction.word_layers import word_layers
from fedleak.client.decoder import BODY, DecoderOptions
from fedleak.client.engine.local_hyperparameters import LocalTraining
from fedleak.client.text import TextAlgorithm
from fedleak.core.errors import InputError
from fedleak.modules.learners.decoder import FederatedDecoder
from fedleak.recordings.named_algorithm import learner_from
from tests.text_toys import CLIENTS, learner, seen


def test_one_step_is_minus_the_gradient_of_the_mean_loss_of_all_next_words() -> None:
    view, module = seen("decoder", CLIENTS[:1]), learner("decoder", LocalTraining(learning_rate=0.3))
    losses = []
    for sentence in CLIENTS[0]:
        words = torch.tensor([sentence])
        losses.append(cross_entropy(module(words)[0], words[0, 1:], reduction="sum"))
    loss = torch.stack(losses).sum() / sum(len(sentence) - 1 for sentence in CLIENTS[0])
    for name, value in zip(
        dict(module.named_parameters()), torch.autograd.grad(loss, list(module.parameters())), strict=True
    ):
        if name != "embedding.weight":
            torch.testing.assert_close(view.deltas[name][0], -0.3 * value, rtol=1e-3, atol=1e-6)


def test_the_loss_has_functional_gradients() -> None:
    module = learner("decoder", LocalTraining())
    words = torch.tensor(CLIENTS[0][:1])
    examples = {"tokens": words, "place": words, "label": torch.zeros(1)}
    mask = torch.ones(1, dtype=torch.bool)
    found = grad(lambda parameters: module.algorithm.loss(parameters, examples, mask))(module.public_parameters())
    assert float(found[f"{BODY}.layers.1.query.weight"].norm()) > 0


@pytest.mark.parametrize("kind", ["lstm", "decoder"])
def test_rows_of_a_layers_change_are_sums_of_its_inputs(kind: str) -> None:
    """One sentence: the change of each layer lies in the span of the inputs that the simulator names."""
    sentence = [5, 6, 7, 8]
    view = seen(kind, [[sentence]])
    layers = word_layers(view.require(TextAlgorithm))
    prefixes = [torch.tensor([sentence[:length]]) for length in (1, 2, 3)]
    with torch.no_grad():
        first = [
            layers.prefix_inputs(view.model, prefix[:, :-1])[:1]
            + layers.word_inputs(view.model, prefix.shape[1] - 1)[prefix[:, -1]]
            for prefix in prefixes
        ]
        deeper = [layers.deeper_inputs(view.model, prefix) for prefix in prefixes]
        last = [layers.last_inputs(view.model, prefix) for prefix in prefixes]
    for change, inputs in zip(layers.layer_gradients(view.deltas), (first, deeper, last), strict=True):
        basis = torch.linalg.qr(torch.cat(inputs).T)[0]
        rows = change[0].double()
        assert float((rows - rows @ basis @ basis.T).norm() / rows.norm()) < 1e-4


def test_a_recording_names_the_decoder() -> None:
    simulator = learner("decoder", LocalTraining()).algorithm
    assert learner_from({"name": "decoder", "arguments": simulator.arguments()}) == simulator
    held = {name: tuple(value.shape) for name, value in learner("decoder", LocalTraining()).public_parameters().items()}
    assert simulator.network_shapes(held) == held


def test_a_rating_is_predicted_from_the_last_word() -> None:
    module = FederatedDecoder(
        network=DecoderOptions(task="rating", vocabulary=20, embedding=8, hidden=8, heads=2, places=5)
    )
    short, padded = torch.tensor([[3, 4, 5]]), torch.tensor([[3, 4, 5, 0, 0]])
    torch.testing.assert_close(module(short), module(padded))


@pytest.mark.parametrize("sizes", [{"heads": 3}, {"layers": 0}, {"places": 0}])
def test_impossible_sizes_are_refused(sizes: dict[str, int]) -> None:
    with pytest.raises(InputError, match="heads"):
        DecoderOptions(**sizes)  # type: ignore[arg-type]
