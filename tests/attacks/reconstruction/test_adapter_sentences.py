"""Sentences are read from adapters while places are fewer than rows, and certified only if a simulated step agrees."""

import copy
import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from fedleak.attacks.reconstruction.adapter_sentences import AdapterSentences
from fedleak.attacks.reconstruction.last_words import last_words
from fedleak.attacks.reconstruction.simulated_step import explains
from fedleak.attacks.reconstruction.span_estimate import SpanEstimate
from fedleak.client.engine.local_hyperparameters import LocalTraining
from fedleak.client.pretrained import PretrainedAlgorithm
from fedleak.core.errors import ViewError
from fedleak.core.view import RoundView
from tests.attacks.runs import of_noise, of_others, run, with_deltas, with_noise
from tests.text_toys import plain
from tests.transformer_toys import LLAMA, VOCABULARY, algorithm, moved_model, texts, twin_base, view_of

pytestmark = pytest.mark.integration
RANK = 16
"""Two adapted layers have 32 rows: for three sentences with 7 places each, and not for five."""


def attacked(view: RoundView) -> SpanEstimate:
    estimate = run(AdapterSentences(), view, SpanEstimate)
    estimate.check(view)
    return estimate


def sentences(found: SpanEstimate) -> list[list[list[int]]]:
    return [sorted(plain(own[:count])) for own, count in zip(found.records, found.count.tolist(), strict=True)]


def view_with(tokens: Tensor, *, moved: bool = True, local: LocalTraining | None = None, **adapter: Any) -> RoundView:
    options = {"rank": RANK, **adapter}
    own = algorithm(**options) if local is None else algorithm(local, **options)
    return view_of(own, tokens, moved_model(**options) if moved else None)


@pytest.mark.parametrize("adapter", [{}, {"rank": 8, "targets": ("all-linear",)}, {"variant": "rslora"}])
def test_sentences_are_exact_and_certified_while_places_are_fewer_than_rows(adapter: dict[str, Any]) -> None:
    tokens = texts(2, 3 if "rank" not in adapter else 2)
    found = attacked(view_with(tokens, **adapter))
    assert sentences(found) == [sorted(own) for own in tokens.tolist()]
    assert bool(found.certified.all())
    assert found.predicted.tolist() == [1, 1]
    assert found.rank.tolist() == [7 * tokens.shape[1]] * 2


def test_sentences_of_other_lengths_with_common_beginnings_and_repeated_words_are_exact() -> None:
    tokens = texts(1, 3)
    tokens[0, 1, :3] = tokens[0, 0, :3]
    tokens[0, 2, 1] = tokens[0, 2, 0]
    tokens[0, 2, 5:] = 0
    found = attacked(view_with(tokens))
    assert sentences(found) == [sorted(plain(tokens[0]))]
    assert bool(found.certified.all())


@pytest.mark.parametrize("kind", ["first-step", "ffa"])
def test_where_only_b_moves_the_rank_is_the_limit(kind: str) -> None:
    options: dict[str, Any] = {"moved": kind == "ffa", "variant": "ffa" if kind == "ffa" else "lora"}
    few, many = texts(2, 1), texts(2, 3)
    found = attacked(view_with(few, **options))
    assert sentences(found) == few.tolist()
    assert bool(found.certified.all())
    found = attacked(view_with(many, **options))
    assert not found.certified.any()
    assert found.predicted.tolist() == [0, 0]


def test_more_places_than_rows_give_no_sentence_and_no_certificate() -> None:
    found = attacked(view_with(texts(2, 5)))
    assert found.count.tolist() == [0, 0]
    assert found.predicted.tolist() == [0, 0]


def test_places_are_told_apart_where_a_network_has_them() -> None:
    quiet = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    config = {"model_type": "gpt2", "vocab_size": VOCABULARY, "n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 8}
    tokens = texts(2, 1)
    own = algorithm(config={**config, **quiet}, targets=("c_attn",), rank=RANK)
    generator = torch.Generator().manual_seed(0)
    model = {
        name: 0.05 * torch.randn(value.shape, generator=generator) if "lora_B" in name else value
        for name, value in own.first_model().items()
    }
    found = run(AdapterSentences(longest=8), view_of(own, tokens, model), SpanEstimate)
    assert sentences(found) == tokens.tolist()
    assert bool(found.certified.all())


def test_nothing_is_certified_of_noise_other_tables_and_exchanged_parts() -> None:
    """The whole update of another client has its sentences, as for every attack that reads one update."""
    tokens = texts(4, 2)
    view = view_with(tokens)
    permuted = algorithm(rank=RANK)
    network = copy.deepcopy(permuted.network)
    table = network.get_input_embeddings().weight  # type: ignore[operator]
    table.data = table[torch.randperm(len(table), generator=torch.Generator().manual_seed(0))]
    permuted.__dict__["network"] = network
    deeper = {name: value.roll(1, 0) if ".layers.1." in name else value for name, value in view.deltas.items()}
    controls = [
        of_noise(view),
        dataclasses.replace(view, algorithm=algorithm(rank=RANK, seed=7)),
        dataclasses.replace(view, algorithm=permuted),
        dataclasses.replace(view, deltas=deeper),
        with_noise(view, 1e-3 * float(torch.cat([v.flatten() for v in view.deltas.values()]).std())),
    ]
    for control in controls:
        found = attacked(control)
        assert not found.certified.any()
        pairs = zip(sentences(found), tokens.tolist(), strict=True)
        exact = [set(map(tuple, own)) & set(map(tuple, real)) for own, real in pairs]
        assert not any(exact)
    assert sentences(attacked(of_others(view))) == [sorted(own) for own in tokens.roll(1, 0).tolist()]


@pytest.mark.parametrize("declared", [{"alpha": 8.0}, {"variant": "rslora"}])
def test_another_scale_than_declared_gives_no_prediction(declared: dict[str, Any]) -> None:
    """The simulated step refutes what the ranks promise."""
    view = view_with(texts(2, 2))
    found = attacked(dataclasses.replace(view, algorithm=algorithm(rank=RANK, **declared)))
    assert not found.certified.any()
    assert bool(found.predicted.isnan().all())


@pytest.mark.parametrize("change", [lambda delta: 0.1 * delta, lambda delta: -delta])
def test_a_clip_and_a_sign_that_are_not_declared_give_no_prediction(change: Callable[[Tensor], Tensor]) -> None:
    found = attacked(with_deltas(view_with(texts(2, 2)), change))
    assert not found.certified.any()
    assert bool(found.predicted.isnan().all())


@pytest.mark.parametrize("distance", [0.0, 1e-4])
def test_words_with_the_vector_of_another_give_no_certificate_and_no_prediction(
    tmp_path: Path, distance: float
) -> None:
    own = twin_base(tmp_path, distance=distance, rank=RANK)
    found = attacked(view_of(own, 300 + texts(2, 2) % 100, moved_model(rank=RANK)))
    assert not found.certified.any()
    assert bool(found.predicted.isnan().all())


def test_few_small_steps_leave_sentences_and_no_certificate() -> None:
    tokens = texts(2, 2)
    for rate, exact in ((0.01, True), (0.5, False)):
        local = LocalTraining(learning_rate=rate, batch_size=None, epochs=2)
        found = attacked(view_with(tokens, local=local))
        assert (sentences(found) == [sorted(own) for own in tokens.tolist()]) == exact
        assert not found.certified.any()
        assert bool(found.predicted.isnan().all())


def test_a_simulated_step_tells_every_other_word() -> None:
    tokens = texts(1, 3)
    view = view_with(tokens)
    assert explains(view, 0, tokens[0])
    assert explains(view, 0, tokens[0].flip(0))
    for place in (0, 3, 7):
        altered = tokens[0].clone()
        altered[1, place] = altered[1, place] % (VOCABULARY - 1) + 1
        assert not explains(view, 0, altered)


def test_last_words_are_solved_from_the_gradient_of_all_sentences() -> None:
    tokens = texts(1, 4)
    view = view_with(tokens)
    own = view.require(PretrainedAlgorithm)
    gradient = {name: -delta[0] / own.learning_rate for name, delta in view.deltas.items()}
    found = last_words(own, view.model, gradient, tokens[0, :, :-1])
    assert found.words.tolist() == tokens[0, :, -1].tolist()
    assert bool(found.clear.all())
    # Of an unknown scale, as after a clip, they are the same; with the wrong one they are not.
    clipped = {name: 0.01 * value for name, value in gradient.items()}
    of_any_scale = last_words(own, view.model, clipped, tokens[0, :, :-1], is_scale_known=False)
    assert of_any_scale.words.tolist() == tokens[0, :, -1].tolist()
    assert last_words(own, view.model, clipped, tokens[0, :, :-1]).words.tolist() != tokens[0, :, -1].tolist()


def test_a_simulated_step_of_any_scale_has_the_sign_of_the_update() -> None:
    tokens = texts(1, 3)
    view = view_with(tokens)
    clipped = with_deltas(view, lambda delta: 0.1 * delta)
    assert not explains(clipped, 0, tokens[0])
    assert explains(clipped, 0, tokens[0], is_scale_known=False)
    assert not explains(with_deltas(view, lambda delta: -delta), 0, tokens[0], is_scale_known=False)
    altered = tokens[0].clone()
    altered[1, 3] = altered[1, 3] % (VOCABULARY - 1) + 1
    assert not explains(clipped, 0, altered, is_scale_known=False)


def test_what_has_no_sentences_is_refused() -> None:
    tokens = texts(2, 1)
    view = view_with(tokens)
    first = {name: value for name, value in view.deltas.items() if ".layers.0." in name}
    with pytest.raises(ViewError, match="above the first attention"):
        attacked(dataclasses.replace(view, deltas=first))
    with pytest.raises(ViewError, match="dropout"):
        attacked(view_with(tokens, dropout=0.1))
    with pytest.raises(ViewError, match="adam"):
        attacked(view_with(tokens, local=LocalTraining(learning_rate=1e-3, batch_size=None, optimizer="adam")))
    whole = algorithm(variant="none", config={**LLAMA, "vocab_size": 50})
    with pytest.raises(ViewError, match="adapters"):
        attacked(dataclasses.replace(view, algorithm=whole))
    foreign = dataclasses.replace(view, client_models={name: value[None] for name, value in view.model.items()})
    with pytest.raises(ViewError, match="one global model"):
        attacked(foreign)
