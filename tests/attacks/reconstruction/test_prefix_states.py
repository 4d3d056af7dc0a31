"""States grow like those of the network, and states that follow each other are recognised without their prefix."""

import pytest
import torch
from torch import Tensor

from fedleak.attacks.reconstruction.prefix_states import PrefixStates, prefix_states
from fedleak.attacks.reconstruction.word_layers import RecurrentLayers, word_layers
from fedleak.client.text import TextAlgorithm
from tests.text_toys import KINDS, seen

SENTENCES = [[5, 6, 7, 8], [9, 6, 7, 3], [11, 12, 13, 5]]


def of_kind(kind: str) -> tuple[PrefixStates, RecurrentLayers, dict[str, Tensor]]:
    view = seen(kind)
    layers = word_layers(view.require(TextAlgorithm))
    model = {name: value.double() for name, value in view.model.items()}
    return prefix_states(layers, model), layers, model


def state_of(states: PrefixStates, words: list[int]) -> Tensor:
    state = states.empty()
    for word in words:
        state = states.after(state, torch.tensor([word]))[:, 0]
    return state


@pytest.mark.parametrize("kind", KINDS)
def test_states_begin_with_the_inputs_of_the_last_layer(kind: str) -> None:
    states, layers, model = of_kind(kind)
    parents = torch.cat([state_of(states, words) for words in (SENTENCES[0][:2], SENTENCES[1][:3])])
    words = torch.tensor([20, 21, 22])
    grown = states.after(parents, words)
    for row, prefix in enumerate((SENTENCES[0][:2], SENTENCES[1][:3])):
        expected = layers.last_inputs(model, torch.tensor([[*prefix, int(word)] for word in words]))[:, :-1]
        torch.testing.assert_close(grown[row, :, : expected.shape[1]], expected)


def test_text_longer_than_the_places_of_a_decoder_equals_nothing() -> None:
    states, layers, _ = of_kind("decoder")
    longest = state_of(states, list(range(1, 13)))
    assert float(states.after(longest, torch.tensor([5])).abs().max()) > 1e3
    assert float(longest[:, :48].abs().max()) < 1e3
    assert layers.algorithm.network.embedding == 48


def test_recurrent_states_that_follow_each_other_are_linked_and_no_others() -> None:
    states, _, _ = of_kind("lstm")
    before = torch.cat([state_of(states, words[:2]) for words in SENTENCES])
    after = torch.cat([state_of(states, words[:3]) for words in SENTENCES])
    words = torch.tensor([words[2] for words in SENTENCES])
    noise = 1e-5 * torch.randn(3, 24, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    found = states.links(before[:, :24] + noise, words, after[:, :24] - noise)
    assert [(first, second) for first, second, _ in found] == [(0, 0), (1, 1), (2, 2)]
    torch.testing.assert_close(torch.stack([state for _, _, state in found]), before, atol=1e-2, rtol=0.05)
    assert states.links(before[:, :24], torch.tensor([13, 13, 7]), after[:, :24]) == []


def test_decoder_states_are_not_linked() -> None:
    states, _, _ = of_kind("decoder")
    one = state_of(states, SENTENCES[0])[:, :48]
    assert states.links(one, torch.tensor([5]), one) == []


@pytest.mark.parametrize(("kind", "numbers"), [("lstm", 6 * 24), ("decoder", 2 * (4 * 48 + 64 + 48))])
def test_numbers_of_a_state_are_those_of_all_layers(kind: str, numbers: int) -> None:
    assert of_kind(kind)[0].numbers == numbers
