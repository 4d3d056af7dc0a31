"""Words and sentences certified from adapters: vectors that words share, coarse updates, and learners not declared.

A word is counted as false if a client, of whom `adapter-words` is certain, does not read it; so is a word that such a
client reads and that is missing, because certainty is of the whole set. Of `adapter-sentences`, sentences are counted.
"""

import dataclasses
import functools
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM

from bench.certificates import Counts
from fedleak.attacks.reconstruction.adapter_sentences import AdapterSentences
from fedleak.attacks.words.adapter_words import AdapterWords
from fedleak.client.adapters import AdapterOptions
from fedleak.client.cohort import Cohort
from fedleak.client.engine.local_hyperparameters import LocalTraining
from fedleak.client.pretrained import PretrainedAlgorithm
from fedleak.client.pretrained_examples import TOKENS
from fedleak.core.errors import ViewError
from fedleak.core.seeding import generator_for
from fedleak.core.view import RoundView

CLIENTS, VOCABULARY, WIDTH, TWINS = 12, 400, 64, 100
"""The last `TWINS` words have the vectors of the first ones where a base has twins."""
_LLAMA: dict[str, Any] = {
    **{"model_type": "llama", "vocab_size": VOCABULARY, "hidden_size": WIDTH, "intermediate_size": 64},
    **{"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 4, "max_position_embeddings": 64},
}
Change = Callable[[Tensor], Tensor]
"""From a parameter's deltas of all clients to what they send."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Setting:
    """Clients, what they declare, and what they send.

    Attributes:
        sentences: number of each client.
        length: number of words of each.
        words: first and last word that occur.
        twin_distance: distance of the vectors of twins, in standard deviations of their numbers; None for no twins.
        mean: length of the vectors' common mean, in mean lengths of what they have of their own.
        tied: whether the output layer has the vectors of the words.
        adapter: options of the adapters.
        local: how the clients train.
        declared: options of the adapters as declared, in the place of the true ones.
        said: fields of the local training as declared, in the place of the true ones.
        change: what becomes of the deltas; None for nothing.
        summed: whether each client's update is a sum of three.
        other_base: whether the server has a network of other weights.
    """

    sentences: int = 2
    length: int = 8
    words: tuple[int, int] = (1, VOCABULARY)
    twin_distance: float | None = None
    mean: float = 0.0
    tied: bool = False
    adapter: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    local: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    declared: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    said: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    change: Change | None = None
    summed: bool = False
    other_base: bool = False

    def view(self, seed: int) -> tuple[RoundView, Tensor]:
        """The clients' updates, and their texts ``(C, N, L)``."""
        generator = generator_for(seed, "texts")
        low, high = self.words
        tokens = torch.randint(low, high, (CLIENTS, self.sentences, self.length), generator=generator)
        true = self._algorithm(self.adapter, self.local, seed)
        first = true.first_model()
        model = {
            name: 0.05 * torch.randn(value.shape, generator=generator) if "lora_B" in name else value
            for name, value in first.items()
        }
        examples = torch.ones(tokens.shape[:2], dtype=torch.bool)
        deltas = dict(true.train(model, Cohort(0, torch.arange(CLIENTS), {TOKENS: tokens}, examples)).deltas)
        if self.summed:
            deltas = {name: value + value.roll(1, 0) + value.roll(2, 0) for name, value in deltas.items()}
        if self.change is not None:
            deltas = {name: self.change(value) for name, value in deltas.items()}
        server_seed = seed + 1000 * self.other_base
        declared = self._algorithm({**self.adapter, **self.declared}, {**self.local, **self.said}, server_seed)
        return (
            RoundView(
                round=0,
                pseudonyms=torch.arange(CLIENTS),
                example_counts=torch.full((CLIENTS,), self.sentences),
                deltas=deltas,
                model=model,
                algorithm=declared,
            ),
            tokens,
        )

    def _algorithm(self, adapter: Mapping[str, Any], local: Mapping[str, Any], seed: int) -> PretrainedAlgorithm:
        folder = base(seed, self.twin_distance, self.mean, self.tied)
        options: dict[str, Any] = {"rank": 16, "targets": ("q_proj", "v_proj"), **adapter}
        training: dict[str, Any] = {"learning_rate": 0.5, "batch_size": None, **local}
        return PretrainedAlgorithm(
            config=(folder / "config.json").read_text(encoding="utf-8"),
            folder=folder,
            local=LocalTraining(**training),
            adapter=AdapterOptions(**options),
        )


@functools.cache
def base(seed: int, twin_distance: float | None, mean: float, tied: bool) -> Path:
    """Folder of a small Llama of random weights."""
    folder = Path(tempfile.mkdtemp())
    generator = generator_for(seed, "base")
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        config = AutoConfig.for_model(**_LLAMA, tie_word_embeddings=tied)
        network = AutoModelForCausalLM.from_config(config)  # type: ignore[no-untyped-call]
    table = network.get_input_embeddings().weight.data
    scale = float(table.std())
    if mean:
        direction = torch.nn.functional.normalize(torch.randn(WIDTH, generator=generator), dim=0)
        table += mean * float(table.norm(dim=1).mean()) * direction
    if twin_distance is not None:
        apart = twin_distance * scale * torch.randn(TWINS, WIDTH, generator=generator)
        table[-TWINS:] = table[:TWINS] + apart
    network.save_pretrained(folder)
    return folder


def words_of(setting: Setting, seed: int) -> Counts:
    """Certain words of `adapter-words`, and those read."""
    view, tokens = setting.view(seed)
    read = [set(client[:, :-1].flatten().tolist()) for client in tokens]
    if setting.summed:
        read = [read[client] | read[client - 1] | read[client - 2] for client in range(CLIENTS)]
    try:
        estimate: Any = AdapterWords()(view, generator=generator_for(seed, "attack"))
    except ViewError as refusal:
        return Counts(records=sum(map(len, read)), refusal=str(refusal))
    counts = Counts()
    for words, expected, decided in zip(read, estimate.expected.tolist(), estimate.decisions, strict=True):
        named = set(decided.nonzero().flatten().tolist())
        is_certain = expected == 1
        counts += Counts(
            certified=len(named) if is_certain else 0,
            false=len(named ^ words) if is_certain else 0,
            recovered=len(named & words),
            records=len(words),
        )
    return counts


def sentences_of(setting: Setting, seed: int) -> Counts:
    """Certified sentences of `adapter-sentences`, and those of the clients."""
    view, tokens = setting.view(seed)
    texts = [Counter(map(tuple, client.tolist())) for client in tokens]
    total = CLIENTS * setting.sentences
    try:
        estimate: Any = AdapterSentences()(view, generator=generator_for(seed, "attack"))
    except ViewError as refusal:
        return Counts(records=total, refusal=str(refusal))
    counts = Counts(records=total)
    for own, records, number, certified in zip(
        texts, estimate.records, estimate.count.tolist(), estimate.certified, strict=True
    ):
        found = [tuple(word for word in record.tolist() if word) for record in records[:number]]
        sure = Counter(record for record, is_sure in zip(found, certified.tolist(), strict=False) if is_sure)
        counts += Counts(
            certified=sure.total(), false=(sure - own).total(), recovered=(Counter(found) & own).total(), records=0
        )
    return counts


def quantised(bits: int) -> Change:
    """Numbers on a symmetric grid of each client's tensor."""

    def rounded(value: Tensor) -> Tensor:
        largest = value.abs().flatten(1).amax(1).reshape(-1, *[1] * (value.dim() - 1)).clamp(min=1e-30)
        step = largest / (2 ** (bits - 1) - 1)
        grid: Tensor = (value / step).round() * step
        return grid

    return rounded


def sparse(share: float) -> Change:
    """The largest numbers of each client's tensor; the others are zero."""

    def largest(value: Tensor) -> Tensor:
        flat = value.abs().flatten(1)
        least = flat.sort(1, descending=True).values[:, max(int(share * flat.shape[1]) - 1, 0)]
        return value.where(value.abs() >= least.reshape(-1, *[1] * (value.dim() - 1)), 0)

    return largest


def noised(share: float) -> Change:
    """Noise of a share of the deltas' standard deviation."""

    def noisy(value: Tensor) -> Tensor:
        generator = generator_for(0, "noise", value.numel())
        return value + share * value.std() * torch.randn(value.shape, generator=generator)

    return noisy


def typed(dtype: torch.dtype) -> Change:
    """Numbers rounded to another type."""
    return lambda value: value.to(dtype).to(value)


HIGH = (VOCABULARY - TWINS, VOCABULARY)
SETTINGS: dict[str, Setting] = {
    "honest, rank 16": Setting(),
    "honest, one sentence": Setting(sentences=1),
    "honest, rank 4": Setting(adapter={"rank": 4}),
    "honest, rank 1, more words": Setting(adapter={"rank": 1}, sentences=5),
    "honest, four sentences": Setting(sentences=4),
    "honest, seven sentences": Setting(sentences=7),
    "honest, all linear layers": Setting(adapter={"targets": ("all-linear",), "rank": 8}),
    "honest, rsLoRA": Setting(adapter={"variant": "rslora"}),
    "honest, FFA-LoRA": Setting(adapter={"variant": "ffa"}),
    "honest, few words, often repeated": Setting(words=(1, 12), sentences=3),
    "output tied to the words": Setting(tied=True),
    "vectors with a common mean": Setting(mean=3.0),
    "five steps": Setting(local={"epochs": 5}),
    "momentum, five steps": Setting(local={"epochs": 5, "momentum": 0.9}, said={"momentum": 0.0}),
    "mini-batches": Setting(local={"batch_size": 1}, said={"batch_size": None}),
    "sums of three, not declared": Setting(summed=True, sentences=1),
    "twins of one vector, both kinds typed": Setting(twin_distance=0.0),
    "twins of one vector, the later typed": Setting(twin_distance=0.0, words=HIGH),
    "twins of one vector, tied": Setting(twin_distance=0.0, words=HIGH, tied=True),
    **{f"twins {distance:g} apart": Setting(twin_distance=distance) for distance in (1e-7, 1e-6, 1e-5, 1e-4)},
    **{f"twins {d:g} apart, later typed": Setting(twin_distance=d, words=HIGH) for d in (1e-6, 1e-5, 1e-4)},
    **{f"twins {distance:g} apart, tied": Setting(twin_distance=distance, tied=True) for distance in (1e-3, 1e-2, 0.1)},
    "twins 0.001 apart, later typed": Setting(twin_distance=1e-3, words=HIGH),
    "twins 0.01 apart, both in one text": Setting(twin_distance=1e-2, words=(1, 8), sentences=1),
    "scale of a fourth, not declared": Setting(declared={"alpha": 8.0}),
    "rsLoRA, not declared": Setting(adapter={"variant": "rslora"}, declared={"variant": "lora"}),
    "rate ten times lower than declared": Setting(said={"learning_rate": 5.0}),
    "clipped to a tenth": Setting(change=lambda value: 0.1 * value),
    "negated": Setting(change=lambda value: -value),
    "dropout, not declared": Setting(adapter={"dropout": 0.1}, declared={"dropout": 0.0}),
    "weight decay, not declared": Setting(local={"weight_decay": 1e-3}, said={"weight_decay": 0.0}),
    "Adam, not declared": Setting(
        local={"optimizer": "adam", "learning_rate": 1e-3}, said={"optimizer": "sgd", "learning_rate": 1e-3}
    ),
    "float16": Setting(change=typed(torch.float16)),
    "bfloat16": Setting(change=typed(torch.bfloat16)),
    **{f"{bits} bits": Setting(change=quantised(bits)) for bits in (16, 12, 8, 4)},
    **{f"largest {share:.0%}": Setting(change=sparse(share)) for share in (0.9, 0.5, 0.1, 0.01)},
    **{f"noise of {share:g}": Setting(change=noised(share)) for share in (1e-8, 1e-7, 1e-6, 1e-4)},
    "another base": Setting(other_base=True),
}


def conditions() -> Mapping[str, Callable[[int], Counts]]:
    """Words, then sentences, under each setting."""
    words = {f"words: {name}": functools.partial(words_of, setting) for name, setting in SETTINGS.items()}
    sentences = {f"sentences: {name}": functools.partial(sentences_of, setting) for name, setting in SETTINGS.items()}
    return {**words, **sentences}
