"""Sentences of more places than rows are read from several layers together, and certified only where they are right."""

import dataclasses
from typing import Any

import pytest
import torch

from fedleak.attacks.reconstruction.adapter_prefixes import AdapterPrefixes
from fedleak.attacks.reconstruction.adapter_sentences import AdapterSentences
from fedleak.attacks.reconstruction.span_estimate import SpanEstimate
from fedleak.attacks.reconstruction.toy import LLAMA
from fedleak.client.engine.local_hyperparameters import LocalTraining
from fedleak.core.errors import ViewError
from fedleak.core.view import RoundView
from tests.attacks.runs import of_noise, of_others, run
from tests.text_toys import plain
from tests.transformer_toys import algorithm, texts, view_of

pytestmark = pytest.mark.integration
RANK = 8
"""Query and value have 16 rows: for 12 places with 4 spare ones, where three texts of 8 words have 21."""


def view_with(tokens: torch.Tensor, *, moved: bool = True, **options: Any) -> RoundView:
    clients = algorithm(config=LLAMA, rank=RANK, **options)
    model = clients.first_model()
    if moved:
        generator = torch.Generator().manual_seed(0)
        for name in [name for name in model if "lora_B" in name]:
            model[name] = 0.05 * torch.randn(model[name].shape, generator=generator)
    return view_of(clients, tokens, model)


def attacked(view: RoundView, **options: Any) -> SpanEstimate:
    estimate = run(AdapterPrefixes(**options), view, SpanEstimate)
    estimate.check(view)
    return estimate


def sentences(estimate: SpanEstimate) -> list[list[list[int]]]:
    counts = estimate.count.tolist()
    return [sorted(plain(records[:count])) for records, count in zip(estimate.records, counts, strict=True)]


def test_sentences_of_more_places_than_rows_are_exact_and_certified() -> None:
    tokens = texts(2, 3)
    tokens[0, 1, :3] = tokens[0, 0, :3]  # a common beginning
    tokens[1, 2, 5:] = 0  # a shorter one
    view = view_with(tokens)
    estimate = attacked(view)
    assert sentences(estimate) == [sorted(plain(client_texts)) for client_texts in tokens]
    # Of the first client, another word could nearly take the place of one.
    assert estimate.certified.all(1).tolist() == [False, True]
    assert bool(estimate.predicted[0].isnan())
    assert float(estimate.predicted[1]) == 1
    # The published condition asks each prefix alone, and finds none.
    assert run(AdapterSentences(), view, SpanEstimate).count.tolist() == [0, 0]


def test_nothing_is_certified_of_noise_of_another_base_and_of_exchanged_layers() -> None:
    tokens = texts(2, 3)
    view = view_with(tokens)
    deeper = {name: change if ".layers.0." in name else change.roll(1, 0) for name, change in view.deltas.items()}
    another = algorithm(config=LLAMA, rank=RANK, seed=7)
    controls = [of_noise(view), dataclasses.replace(view, algorithm=another), dataclasses.replace(view, deltas=deeper)]
    for control in controls:
        estimate = attacked(control, states=2**8)
        assert not estimate.certified.any()
        assert not bool((estimate.predicted == 1).any())
        for guessed, true in zip(sentences(estimate), tokens.tolist(), strict=True):
            assert not {tuple(text) for text in guessed} & {tuple(text) for text in true}
    assert sentences(attacked(of_others(view))) == [sorted(plain(client_texts)) for client_texts in tokens.roll(1, 0)]


def test_too_few_states_give_no_certificate() -> None:
    estimate = attacked(view_with(texts(1, 3)), states=2**8)
    assert not estimate.certified.any()
    assert bool(estimate.predicted.isnan().all())


def test_where_a_does_not_move_none_is_found_and_none_predicted() -> None:
    estimate = attacked(view_with(texts(1, 3), moved=False))
    assert estimate.count.tolist() == [0]
    assert estimate.predicted.tolist() == [0]


def test_several_steps_are_refused() -> None:
    with pytest.raises(ViewError, match="one step"):
        attacked(view_with(texts(1, 2), local=LocalTraining(learning_rate=0.1, batch_size=None, epochs=2)))
