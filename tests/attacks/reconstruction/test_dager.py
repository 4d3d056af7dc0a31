"""DAGER equals a slow search over all sentences, and finds nothing in other updates."""

import dataclasses

import pytest
import torch
from torch import Tensor

from fedleak.attacks.reconstruction import Dager
from fedleak.attacks.reconstruction.estimates import ReconstructionEstimate
from fedleak.attacks.reconstruction.word_layers import DecoderLayers
from fedleak.client.decoder import DecoderAlgorithm
from fedleak.core.errors import ViewError
from fedleak.core.seeding import generator_for
from fedleak.core.view import RoundView
from tests.attacks.runs import of_noise, of_others, run
from tests.text_toys import CLIENTS, WORDS, plain, seen

VIEW = seen("decoder")


def attacked(view: RoundView, **arguments: float | bool) -> ReconstructionEstimate:
    return run(Dager(**arguments), view, ReconstructionEstimate)  # type: ignore[arg-type]


def sentences(found: ReconstructionEstimate) -> list[list[list[int]]]:
    return [plain(records[:count]) for records, count in zip(found.records, found.count.tolist(), strict=True)]


def without_last_words(own: list[list[int]]) -> list[list[int]]:
    """Beginnings of two words and more that no other one continues."""
    cut = [sentence[:-1] for sentence in own if len(sentence) > 2]
    return sorted(one for one in cut if not any(one != other and one == other[: len(one)] for other in cut))


def slow(view: RoundView, victim: int) -> list[list[int]]:
    """Algorithms 1 and 2, one word and one sentence at a time, with least squares for distances."""
    learner = view.require(DecoderAlgorithm)
    body = DecoderLayers(learner).body({name: value.double() for name, value in view.model.items()})
    table = view.model["embedding.weight"].double()
    gradients = [
        torch.cat([view.deltas[f"decoder.layers.{n}.{part}.weight"][victim] for part in ("query", "key", "value")])
        for n in (0, 1)
    ]
    rank = min(max(int(torch.linalg.matrix_rank(one, atol=1e-7)) for one in gradients), table.shape[1] - 20)
    spans = [torch.linalg.svd(one.double())[2][:rank].T for one in gradients]

    def near(layer: int, place: Tensor, limit: float) -> bool:
        unit = (place / place.norm())[:, None]
        rest = unit - spans[layer] @ torch.linalg.lstsq(spans[layer], unit).solution
        return float(rest.norm()) < limit

    def inputs(sentence: list[int]) -> tuple[Tensor, Tensor]:
        start = table[torch.tensor([sentence])] + body.position.weight[: len(sentence)]
        first, second = body.layers
        return first.norm(start)[0, -1], second.norm(first(start))[0, -1]  # type: ignore[operator]

    def grow(sentence: list[int]) -> list[list[int]]:
        longer = [[*sentence, word] for word in range(1, WORDS)] if len(sentence) < 12 else []
        right = [one for one in longer if near(0, inputs(one)[0], 1e-5) and near(1, inputs(one)[1], 1e-3)]
        found = [whole for one in right for whole in grow(one)]
        return found or ([sentence] if len(sentence) > 1 else [])

    return sorted(grow([]))


def test_published_algorithm_equals_a_slow_search_and_lacks_the_last_words() -> None:
    found = sentences(attacked(VIEW))
    assert found == [slow(VIEW, victim) for victim in range(2)]
    assert found == [without_last_words(own) for own in CLIENTS]


def test_last_words_are_those_of_the_last_layer() -> None:
    assert sentences(attacked(VIEW, last_words=True)) == [sorted(own) for own in CLIENTS]


def test_update_of_another_client_gives_its_sentences_and_noise_gives_none() -> None:
    assert sentences(attacked(of_others(VIEW))) == [without_last_words(own) for own in CLIENTS[::-1]]
    for other in (of_noise(VIEW), dataclasses.replace(VIEW, model=seen("decoder", seed=1).model)):
        found = attacked(other, last_words=True)
        assert not any(own in CLIENTS[victim] for victim, records in enumerate(sentences(found)) for own in records)


def test_rank_above_the_cut_ends_the_attack() -> None:
    generator = generator_for(0, "sentences")
    many = [torch.randint(1, WORDS, (12, 8), generator=generator).tolist()]
    assert attacked(seen("decoder", many)).count.tolist() == [0]


def test_decoder_of_one_layer_is_refused() -> None:
    network = dataclasses.replace(VIEW.require(DecoderAlgorithm).network, layers=1)
    one = dataclasses.replace(VIEW.require(DecoderAlgorithm), network=network)
    with pytest.raises(ViewError, match="two layers"):
        attacked(dataclasses.replace(VIEW, algorithm=one))


def test_attention_of_two_layers_is_all_that_the_published_attack_needs() -> None:
    attention = {name: value for name, value in VIEW.deltas.items() if name.endswith(("y.weight", "value.weight"))}
    assert {name.split(".")[-2] for name in attention} == {"query", "key", "value"}
    seen_only = dataclasses.replace(VIEW, deltas=attention, row_parameters=frozenset(), served=None)
    assert sentences(attacked(seen_only)) == [without_last_words(own) for own in CLIENTS]
    with pytest.raises(ViewError, match=r"output\.weight"):
        attacked(seen_only, last_words=True)
