"""Next-word counts are exact after one step, and follow the update and nothing else."""

import dataclasses

import pytest
import torch

from fedleak.attacks.words.estimates import WordCountEstimate
from fedleak.attacks.words.next_words import NextWords, next_word_shares, words_per_text
from fedleak.core.errors import ViewError
from fedleak.core.seeding import generator_for
from fedleak.core.view import RoundView
from tests.attacks.runs import of_noise, of_others, plain_view, run, with_deltas, with_noise
from tests.word_toys import words_seen


def scored(view: RoundView, truth: dict[str, torch.Tensor]) -> dict[str, float]:
    found = run(NextWords(), view, WordCountEstimate)
    return {name: float(value.nanmean()) for name, value in found.score(view, truth).metrics.items()}


def test_one_step_gives_all_counts_with_and_without_the_learning_rate() -> None:
    view, truth = words_seen()
    for one in (view, dataclasses.replace(view, algorithm=None, auxiliary={})):
        found = scored(one, truth)
        assert found["within-one"] > 0.99
        assert found["exact-words"] > 0.95


def test_the_update_of_another_client_gives_the_counts_of_that_client() -> None:
    view, truth = words_seen()
    others = of_others(view)
    assert scored(others, {k: v.roll(1, 0) for k, v in truth.items()})["exact-words"] > 0.95
    assert scored(others, truth)["exact-words"] < 0.5


def test_much_noise_leaves_the_frequencies_of_everybody() -> None:
    view, truth = words_seen()
    little, much = (scored(with_noise(view, scale), truth)["exact-words"] for scale in (1e-6, 1.0))
    assert much < 0.5 < little


def test_several_steps_have_the_prediction_of_the_model_half_way() -> None:
    """After a state of ones for each word, errors of the counts are of second order in the step size."""
    counts = torch.zeros(40).index_put((torch.arange(1, 9),), torch.tensor([1.0, 1, 1, 2, 2, 3, 4, 5]))
    generator = generator_for(0, "last layer")
    start = {"output.weight": torch.randn(40, 8, generator=generator) / 10, "output.bias": torch.zeros(40)}
    weight, bias = (value.clone() for value in start.values())
    for _ in range(10):
        error = counts / counts.sum() - (weight.sum(1) + bias).softmax(0)
        weight, bias = weight + 0.03 * error[:, None], bias + 0.03 * error
    deltas = {"output.weight": (weight - start["output.weight"])[None], "output.bias": bias[None]}
    view = plain_view(1, deltas=deltas, model={"embedding.weight": torch.zeros(40, 3), **start})
    found = run(NextWords(), view, WordCountEstimate).counts[0]
    torch.testing.assert_close(found, counts.double(), atol=0.01, rtol=0)


def test_padding_is_no_next_word_of_a_text() -> None:
    texts = torch.tensor([[7, 8, 9, 0, 0], [7, 8, 9, 7, 8]])
    assert words_per_text(plain_view(1, auxiliary={"prior_features": texts})) == (2 + 4) / 2


def test_a_last_layer_of_other_height_than_the_embedding_is_refused() -> None:
    view, _ = words_seen()
    model = {n: v for n, v in view.model.items() if not n.startswith("embedding")}
    with pytest.raises(ViewError, match="word"):
        run(NextWords(), dataclasses.replace(view, model=model), WordCountEstimate)


def shares_of(view: RoundView, truth: dict[str, torch.Tensor]) -> torch.Tensor:
    """Shares of next words as `next_word_shares` gives them, if the words that do not occur are known."""
    held = torch.zeros(view.victims, len(view.model["output.bias"]), dtype=torch.bool)
    held.scatter_(1, truth["words"].long(), torch.ones_like(held))
    return next_word_shares(view, ~held)


def test_shares_among_next_words_are_exact_after_one_step_if_absent_words_are_known() -> None:
    view, truth = words_seen()
    found = shares_of(view, truth)
    counts = run(NextWords(), view, WordCountEstimate).counts
    expected = counts / counts.sum(1, keepdim=True)
    assert float((found[:, 1:] - expected[:, 1:]).abs().max()) < 2e-3
    others = shares_of(of_others(view), truth)
    assert float((others[:, 1:] - expected[:, 1:]).abs().max()) > 0.02


def test_shares_behind_noise_are_of_the_size_of_shares() -> None:
    """The bias of an absent word cannot rise: if all do that are said to be absent, the mean state is unknown."""
    view, _ = words_seen()
    absent = torch.zeros(view.victims, len(view.model["output.bias"]), dtype=torch.bool)
    absent[:, 0] = True
    for seed in range(3):
        noise = with_deltas(of_noise(view, seed), lambda delta: delta * delta[:, :1].sign())
        assert bool((noise.deltas["output.bias"][:, 0] > 0).all())
        assert float(next_word_shares(noise, absent).abs().max()) < 1
    assert float(next_word_shares(view, torch.zeros_like(absent)).abs().max()) < 1
