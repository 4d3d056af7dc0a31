"""Touched rows are the words of a leaky toy; under noise, the posterior of its predicted F1, or what is popular."""

import dataclasses

import pytest
import torch

from fedleak.attacks.words.baselines import PopularWords
from fedleak.attacks.words.estimates import WordSetEstimate
from fedleak.attacks.words.touched_rows import TouchedRows, embedding_table
from fedleak.client.engine.local_hyperparameters import LocalTraining
from fedleak.client.text import EMBEDDING
from fedleak.core.errors import ViewError
from fedleak.core.release import Release
from fedleak.core.seeding import generator_for
from fedleak.core.view import RoundView
from tests.attacks.runs import of_others, run, with_deltas, with_noise
from tests.word_toys import STEP, words_seen


def scored(attack: TouchedRows | PopularWords, view: RoundView, truth: dict[str, torch.Tensor]) -> dict[str, float]:
    found = run(attack, view, WordSetEstimate)
    return {name: float(value.nanmean()) for name, value in found.score(view, truth).metrics.items()}


@pytest.mark.parametrize(
    "local",
    [STEP, LocalTraining(learning_rate=0.5, batch_size=2, epochs=2), LocalTraining(optimizer="adam", batch_size=2)],
    ids=["step", "epochs", "adam"],
)
def test_rows_that_moved_are_the_words(local: LocalTraining) -> None:
    view, truth = words_seen(local)
    own = dataclasses.replace(view, deltas={EMBEDDING: view.deltas[EMBEDDING]}) if local.optimizer == "adam" else view
    found = scored(TouchedRows(), own, truth)
    assert found["f1"] == pytest.approx(1, abs=0.06 if own is not view else 0)
    if own is view:  # the scores, too, place words that are no inputs before the absent ones
        assert found["auc"] == 1
    assert found["f1"] > scored(PopularWords(), view, truth)["f1"] + 0.2


def test_no_learner_and_no_last_layer_are_needed() -> None:
    view, truth = words_seen()
    foreign = dataclasses.replace(view, algorithm=None, auxiliary={}, deltas={EMBEDDING: view.deltas[EMBEDDING]})
    assert scored(TouchedRows(), foreign, truth)["f1"] > 0.9


def test_decay_of_the_other_rows_is_removed() -> None:
    view, truth = words_seen()
    touched = view.deltas[EMBEDDING].abs().sum(2, keepdim=True) > 0
    decayed = view.deltas[EMBEDDING] - 0.01 * view.model[EMBEDDING] * ~touched
    assert (
        scored(TouchedRows(), dataclasses.replace(view, deltas={**view.deltas, EMBEDDING: decayed}), truth)["f1"] == 1
    )


def test_rows_sent_alone_give_the_same_words() -> None:
    view, truth = words_seen()
    rows = torch.where(truth["words"] > 0, truth["words"], -1)
    client = torch.arange(len(rows))[:, None]
    own = view.deltas[EMBEDDING][client, rows.clamp(min=0)] * (rows >= 0)[..., None]
    sparse = dataclasses.replace(
        view, deltas={**view.deltas, EMBEDDING: own}, served=rows, row_parameters=frozenset({EMBEDDING})
    )
    assert scored(TouchedRows(), sparse, truth)["f1"] == 1
    noise = torch.randn(own.shape, generator=generator_for(0, "noise")) * (rows >= 0)[..., None]
    release = Release(noise_scale=1.0, parameters=tuple(sparse.deltas))
    listed = dataclasses.replace(sparse, deltas={**sparse.deltas, EMBEDDING: own + noise}, releases=(release,))
    assert scored(TouchedRows(), listed, truth)["f1"] == 1


def test_the_update_of_another_client_gives_the_words_of_that_client() -> None:
    view, truth = words_seen()
    others = of_others(view)
    assert scored(TouchedRows(), others, truth)["rare-words"] == 0
    assert scored(TouchedRows(), others, {k: v.roll(1, 0) for k, v in truth.items()})["f1"] == 1


def test_under_noise_f1_falls_from_all_words_to_those_that_everybody_uses() -> None:
    view, truth = words_seen()
    popular = scored(PopularWords(), view, truth)
    little, much = (scored(TouchedRows(), with_noise(view, scale), truth) for scale in (1e-6, 10.0))
    assert little["f1"] > 0.9
    assert little["predicted-f1"] > 0.9
    assert much["f1"] == pytest.approx(popular["f1"], abs=0.05)
    assert much["predicted-f1"] == pytest.approx(popular["predicted-f1"], abs=0.05)
    unknown = scored(TouchedRows(), dataclasses.replace(with_noise(view, 1e-6), auxiliary={}), truth)
    assert unknown["f1"] > 0.9
    pure = with_noise(dataclasses.replace(with_deltas(view, torch.zeros_like), auxiliary={}), 1.0)
    assert abs(scored(TouchedRows(), pure, truth)["auc"] - 0.5) < 0.07


def test_what_the_update_says_alone_knows_no_frequencies() -> None:
    """Priors are added to it: to a posterior they would be added twice."""
    view, _ = words_seen()
    noised = with_noise(with_deltas(view, torch.zeros_like), 1.0)
    found = run(TouchedRows(), noised, WordSetEstimate)
    assert found.evidence is not None
    alone, both = found.evidence[:, 1:], found.scores[:, 1:].logit(1e-9)
    assert abs(float(torch.corrcoef(torch.stack([alone.flatten(), both.flatten()]))[0, 1])) < 0.3


def test_a_recording_without_a_table_of_words_is_refused() -> None:
    view, _ = words_seen()
    with pytest.raises(ViewError, match="table"):
        run(
            TouchedRows(),
            dataclasses.replace(view, deltas={"output.bias": view.deltas["output.bias"]}),
            WordSetEstimate,
        )
    assert embedding_table(view) == embedding_table(view, EMBEDDING) == EMBEDDING
