"""DAGER: sentences from the gradients of a transformer decoder's attention."""

from collections.abc import Callable

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence

from bench.authors.contest import Comparison, Contest
from bench.authors.host import Arrays, part
from fedleak.attacks.reconstruction.dager import Dager
from fedleak.attacks.reconstruction.estimates import ReconstructionEstimate
from fedleak.client.decoder import DecoderAlgorithm, DecoderOptions, draw_weights
from fedleak.client.engine.local_hyperparameters import LocalTraining
from fedleak.client.text import OUTPUT, text_cohort
from fedleak.core.view import RoundView

_SENTENCES, _WORDS = 16, 12
_NETWORK = DecoderOptions(vocabulary=50257, embedding=768, hidden=3072, layers=2, heads=12, places=32)


class DagerSentences(Contest):
    """Two clients with 16 generated sentences of up to 12 words each; GPT-2's sizes, two layers, untrained."""

    name = "dager"
    paper = "DAGER, algorithms 1 and 2"
    authors = "dager"
    theirs = "bench.authors.drivers.dager"

    def write(self) -> tuple[Arrays, Arrays]:
        generator, victims = torch.Generator().manual_seed(7), 2
        algorithm = _algorithm()
        body = _NETWORK.body()
        draw_weights(body, generator)
        model = {f"decoder.{name}": value.detach() for name, value in body.named_parameters()}
        for name, shape in algorithm.network_shapes({}).items():
            if name not in model:
                model[name] = torch.randn(shape, generator=generator) * 0.02
        lengths = torch.randint(6, _WORDS + 1, (victims * _SENTENCES,), generator=generator)
        # Words are as frequent as the reciprocal of their rank.
        words = 1 + torch.multinomial(1 / torch.arange(1.0, 50256), int(lengths.sum()), True, generator=generator)
        texts = pad_sequence(list(torch.split(words, lengths.tolist())), batch_first=True)
        examples = torch.arange(victims * _SENTENCES).view(victims, -1)
        cohort = text_cohort(0, torch.arange(victims), texts, torch.zeros(len(texts)), examples)
        deltas = algorithm.train(model, cohort).deltas
        attention = [
            torch.cat([deltas[f"decoder.layers.{n}.{own}.weight"] for own in ("query", "key", "value")], dim=1)
            for n in range(_NETWORK.layers)
        ]
        arrays = {
            **{f"model/{name}": value.numpy() for name, value in model.items() if not name.startswith(OUTPUT)},
            "gradients": -torch.stack(attention, dim=1).transpose(2, 3).contiguous().numpy(),
            "examples": np.array(_SENTENCES),
            "heads": np.array(_NETWORK.heads),
            "tolerance": np.array(Dager.tolerance),
            "victims": np.array(victims),
        }
        return arrays, {"sentences": texts.view(victims, _SENTENCES, -1).numpy()}

    def compare(self, truth: Arrays, ours: Arrays, theirs: Arrays) -> list[Comparison]:
        """The last word of a sentence is no input, so that the truth is without it."""
        true = [{one[:-1] for one in own} for own in map(_set, truth["sentences"])]
        sets = [list(map(_set, side["sentences"])) for side in (ours, theirs)]
        exact = [
            float(np.mean([len(own & found) / len(own) for own, found in zip(true, side, strict=True)]))
            for side in sets
        ]
        same = float(np.mean([len(a & b) / max(len(a | b), 1) for a, b in zip(*sets, strict=True)]))
        return [
            Comparison("share of exact sentences", exact[0], exact[1], 0.01),
            Comparison("share of sentences that both found", same, 1.0, 0.01),
        ]


def prepare(inputs: Arrays) -> Callable[[], Arrays]:
    """A step of SGD with learning rate 1 changes the layers by minus their gradients."""
    victims, width = int(inputs["victims"]), _NETWORK.embedding
    changes = -torch.from_numpy(inputs["gradients"]).transpose(2, 3)
    deltas = {
        f"decoder.layers.{n}.{own}.weight": changes[:, n, place * width : (place + 1) * width]
        for n in range(_NETWORK.layers)
        for place, own in enumerate(("query", "key", "value"))
    }
    view = RoundView(
        round=0,
        pseudonyms=torch.arange(victims),
        example_counts=torch.full((victims,), int(inputs["examples"])),
        deltas=deltas,
        model={name: torch.from_numpy(value) for name, value in part(inputs, "model").items()},
        algorithm=_algorithm(),
    )

    def run() -> Arrays:
        estimate = Dager()(view, generator=torch.Generator())
        assert isinstance(estimate, ReconstructionEstimate)
        return {"sentences": pad_sequence(list(estimate.records), batch_first=True).numpy()}

    return run


def _set(sentences: np.ndarray) -> set[tuple[int, ...]]:
    return {tuple(one[one > 0].tolist()) for one in sentences if one.any()}


def _algorithm() -> DecoderAlgorithm:
    return DecoderAlgorithm(local=LocalTraining(learning_rate=1.0), network=_NETWORK)
