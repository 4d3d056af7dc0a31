"""Words are read from adapters, also more of them than the rank; nothing is certain where the update says nothing."""

import dataclasses
from pathlib import Path

import pytest
import torch
from torch import Tensor

from fedleak.attacks.words.adapter_span import AdapterSpan
from fedleak.attacks.words.adapter_words import AdapterWords
from fedleak.attacks.words.estimates import WordSetEstimate
from fedleak.client.cohort import Cohort
from fedleak.client.engine.local_hyperparameters import LocalTraining
from fedleak.client.pretrained_examples import LABEL, TOKENS
from fedleak.core.errors import ViewError
from fedleak.core.release import Release
from fedleak.core.view import RoundView
from tests.attacks.runs import of_noise, of_others, run, with_deltas
from tests.transformer_toys import (
    LLAMA,
    VOCABULARY,
    algorithm,
    coherent_base,
    moved_model,
    texts,
    twin_base,
    view_of,
    words_read,
)

pytestmark = pytest.mark.integration
ROWS = 8
"""Rows of two adapted layers of rank 4."""


def decided(view: RoundView, attack: AdapterWords | AdapterSpan | None = None) -> list[set[int]]:
    estimate = run(attack or AdapterWords(), view, WordSetEstimate)
    estimate.check(view)
    return [set(own.nonzero().flatten().tolist()) for own in estimate.decisions]


def certain(view: RoundView) -> Tensor:
    return run(AdapterWords(), view, WordSetEstimate).expected == 1


@pytest.mark.parametrize("steps", [1, 10])
@pytest.mark.parametrize("sentences", [1, 5])
def test_words_are_exact_also_above_the_rank_after_any_number_of_steps(steps: int, sentences: int) -> None:
    own, tokens = algorithm(LocalTraining(learning_rate=0.5, batch_size=None, epochs=steps)), texts(2, sentences)
    view = view_of(own, tokens, moved_model())
    assert decided(view) == words_read(tokens)
    assert bool(certain(view).all())
    found = decided(view, AdapterSpan())
    assert found == (words_read(tokens) if sentences == 1 else [set(), set()])  # 7 of 8 rows, and about 34


@pytest.mark.parametrize("mean", [0.0, 1.0, 3.0])
@pytest.mark.parametrize("decay", [0.5, 1.0])
def test_words_of_a_table_with_a_common_mean_and_a_decaying_spectrum(tmp_path: Path, mean: float, decay: float) -> None:
    """Some 20 words in eight rows; of 33 words, the most coherent of these tables hides a few."""
    own, tokens = coherent_base(tmp_path, mean=mean, decay=decay), texts(20, 3)
    assert decided(view_of(own, tokens, moved_model())) == words_read(tokens)


@pytest.mark.parametrize("distance", [0.0, 1e-4, 1e-2, 1.0])
def test_words_with_the_vector_of_another_are_not_certain(tmp_path: Path, distance: float) -> None:
    """At 1e-2 a swap leaves forty errors, and whether the search succeeds depends on the processor's rounding."""
    own, tokens = twin_base(tmp_path, distance=distance), 300 + texts(4, 2) % 100
    view = view_of(own, tokens, moved_model())
    is_certain = certain(view)
    if distance <= 1e-4:
        assert not bool(is_certain.any())
    if distance >= 1:
        assert bool(is_certain.any())
    for words, is_sure, read in zip(decided(view), is_certain.tolist(), words_read(tokens), strict=True):
        assert not is_sure or words == read


def test_a_sum_of_clients_has_the_words_of_all_of_them() -> None:
    own, tokens = algorithm(), texts(5, 1)
    view = view_of(own, tokens, moved_model())
    whole = dataclasses.replace(
        with_deltas(view, lambda delta: delta.sum(0, keepdim=True)),
        pseudonyms=view.pseudonyms[:1],
        example_counts=view.example_counts.sum()[None],
    )
    assert decided(whole) == [set().union(*words_read(tokens))]


def test_before_the_first_step_and_with_a_frozen_a_the_rank_is_the_limit() -> None:
    for variant, model in (("lora", None), ("ffa", moved_model(variant="ffa", rank=16))):
        own = algorithm(variant=variant, rank=16)
        few, many = texts(2, 1), texts(2, 5)
        assert decided(view_of(own, few, model)) == words_read(few)
        assert not bool(certain(view_of(own, many, model)).any())


def test_places_are_told_apart_where_a_network_has_them() -> None:
    config = {"model_type": "gpt2", "vocab_size": VOCABULARY, "n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 8}
    quiet = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    own, tokens = algorithm(config={**config, **quiet}, targets=("c_attn",), rank=8), texts(2, 1)
    generator = torch.Generator().manual_seed(0)
    model = {
        name: 0.05 * torch.randn(value.shape, generator=generator) if "lora_B" in name else value
        for name, value in own.first_model().items()
    }
    assert decided(view_of(own, tokens, model), AdapterWords(places=8)) == words_read(tokens)


@pytest.mark.parametrize("sentences", [1, 3])
def test_words_of_an_encoder_with_a_class_head_are_found_at_all_places(sentences: int) -> None:
    """Every place of every text is read: 8 and 24 places, also more than the 16 rows."""
    config = {**LLAMA, "model_type": "bert", "max_position_embeddings": 8, "hidden_dropout_prob": 0.0}
    del config["num_key_value_heads"]
    own = algorithm(config={**config, "attention_probs_dropout_prob": 0.0}, targets=("query", "value"), rank=8)
    own = dataclasses.replace(own, task="sequence-classification")
    tokens = texts(2, sentences)
    generator = torch.Generator().manual_seed(0)
    model = {
        name: 0.05 * torch.randn(value.shape, generator=generator) if "lora_B" in name else value
        for name, value in own.first_model().items()
    }
    fields = {TOKENS: tokens, LABEL: torch.arange(2 * sentences).reshape(2, sentences) % 2}
    cohort = Cohort(0, torch.arange(2), fields, torch.ones(2, sentences, dtype=torch.bool))
    view = RoundView(
        round=0,
        pseudonyms=torch.arange(2),
        example_counts=torch.full((2,), sentences),
        deltas=own.train(model, cohort).deltas,
        model=model,
        algorithm=own,
    )
    # The network has eight places, fewer than the attack looks at.
    for found, text in zip(decided(view), tokens, strict=True):
        assert found == set(text.flatten().tolist())


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_adam_and_dropout_leave_a_ranking_without_certainty(optimizer: str) -> None:
    local = LocalTraining(learning_rate=1e-3 if optimizer == "adam" else 0.5, batch_size=2, optimizer=optimizer)  # type: ignore[arg-type]
    own, tokens = algorithm(local, rank=16, dropout=0.1), texts(2, 4)
    view = view_of(own, tokens, moved_model(rank=16))
    estimate = run(AdapterWords(), view, WordSetEstimate)
    assert bool(estimate.expected.isnan().all())
    for scores, words in zip(estimate.scores, words_read(tokens), strict=True):
        best = set(scores.topk(len(words)).indices.tolist())
        assert len(best & words) > 0.5 * len(words)


def test_declared_noise_is_no_certainty_and_hides_the_words() -> None:
    own, tokens = algorithm(), texts(2, 3)
    view = view_of(own, tokens, moved_model())
    scale = 10 * max(float(delta.std()) for delta in view.deltas.values())
    noisy = with_deltas(view, lambda delta: delta + scale * torch.randn(delta.shape))
    noisy = dataclasses.replace(noisy, releases=(Release(noise_scale=scale, parameters=tuple(view.deltas)),))
    assert not bool(certain(noisy).any())
    assert all(len(own & words) < 4 for own, words in zip(decided(noisy), words_read(tokens), strict=True))


def test_other_updates_noise_and_other_tables_are_certain_of_nothing_true_of_a_thousand() -> None:
    own, tokens = algorithm(), texts(1000, 3)
    view = view_of(own, tokens, moved_model())
    assert not bool(certain(of_noise(view)).any())
    other = dataclasses.replace(view, algorithm=algorithm(seed=7))
    assert not bool(certain(other).any())
    tokens = tokens[:20]
    view = view_of(own, tokens, moved_model())
    exchanged = [
        len(found & words) / len(words)
        for found, words in zip(decided(of_others(view)), words_read(tokens), strict=True)
    ]
    assert sum(exchanged) / len(exchanged) < 0.15  # what two clients' texts have in common


def test_a_table_of_permuted_numbers_is_certain_of_nothing_and_one_of_permuted_names_is_at_chance(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An update says which vectors were read, never what they are called: wrong names of right vectors stay wrong."""
    own, tokens = algorithm(), texts(1000, 3)
    view, table = view_of(own, tokens, moved_model()), own.first_inputs(tokens.shape[-1])
    order = torch.rand(table.vectors.shape, generator=torch.Generator().manual_seed(1)).argsort(1)
    stored = table.vectors[torch.arange(len(table.vectors))]
    permuted = dataclasses.replace(table, vectors=stored.gather(1, order))
    monkeypatch.setattr(type(own), "first_inputs", lambda *_: permuted)
    assert not bool(certain(view).any())
    names = table.tokens[torch.randperm(len(table.tokens), generator=torch.Generator().manual_seed(2))]
    monkeypatch.setattr(type(own), "first_inputs", lambda *_: dataclasses.replace(table, tokens=names))
    shares = [
        len(found & words) / len(words)
        for found, words in zip(decided(view.select(torch.arange(100))), words_read(tokens[:100]), strict=True)
    ]
    chance = sum(len(words) for words in words_read(tokens[:100])) / 100 / VOCABULARY
    assert sum(shares) / len(shares) == pytest.approx(chance, abs=0.03)


def test_an_estimate_has_the_f1_of_words_that_leave_a_trace() -> None:
    own, tokens = algorithm(), texts(2, 4)
    view = view_of(own, tokens, moved_model())
    estimate = run(AdapterWords(), view, WordSetEstimate)
    words = torch.stack([torch.nn.functional.pad(torch.unique(one), (0, 40))[:40] for one in tokens])
    read = torch.stack([torch.nn.functional.pad(torch.unique(one[:, :-1]), (0, 40))[:40] for one in tokens])
    found = estimate.score(view, {"words": words, "read_words": read}).metrics
    assert found["read-f1"].tolist() == [1, 1]
    assert float(found["f1"].max()) < 1
    assert "read-f1" not in estimate.score(view, {"words": words}).metrics


def test_what_has_no_words_of_its_own_is_refused() -> None:
    own, tokens = algorithm(), texts(2, 1)
    view = view_of(own, tokens, moved_model())
    later = {name: value for name, value in view.deltas.items() if ".layers.1." in name}
    with pytest.raises(ViewError, match=r"first adapters.*layers\.0"):
        run(AdapterWords(), dataclasses.replace(view, deltas=later), WordSetEstimate)
    whole = algorithm(variant="none", config={**LLAMA, "vocab_size": 50})
    with pytest.raises(ViewError, match="adapters of a network that reads tokens"):
        run(AdapterWords(), dataclasses.replace(view, algorithm=whole), WordSetEstimate)
    with pytest.raises(ViewError, match="mixture"):
        algorithm(targets=("down_proj",)).first_inputs(8)
