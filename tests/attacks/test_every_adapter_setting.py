"""Every setting in which people fine-tune adapters is attacked, or refused with a way out; nothing false is certain.

A new setting is a case in `SETTINGS`, with what the attacks make of it.
"""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from fedleak.attacks.reconstruction.adapter_sentences import AdapterSentences
from fedleak.attacks.reconstruction.span_estimate import SpanEstimate
from fedleak.attacks.words.adapter_words import AdapterWords
from fedleak.attacks.words.estimates import WordSetEstimate
from fedleak.attacks.words.touched_rows import TouchedRows
from fedleak.core.errors import InputError, ViewError
from fedleak.core.seeding import generator_for
from fedleak.core.view import RoundView
from tests.adapter_settings import COPIED, LENGTH, TEXTS, Setting, different_words, opened, record, texts_of
from tests.attacks.runs import run

SGD = torch.optim.SGD
ADAMW = torch.optim.AdamW
LINEAR = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
BIASED = {"attention_bias": True}
TIED = {"tie_word_embeddings": True}


@dataclass(frozen=True, kw_only=True)
class Case:
    """A setting, and what the attacks make of it.

    Attributes:
        setting: what clients do, and what the auditor says.
        words: ``certain`` and right; ``exact``, but not certain; ``ranked``, more than half of those present are right;
            ``hidden``, a ranking that may be wrong; or ``refused``.
        sentences: ``certified`` and right; ``unclear``, right and not certified, because other last words explain the
            update nearly as well; ``found``, all of them, without a prediction; ``open``, without sentences
            and prediction; ``none``, as predicted; or ``refused``.
        reason: what the error says where the recording is refused; empty if it is not.
    """

    setting: Setting
    words: str = "certain"
    sentences: str = "certified"
    reason: str = ""


def refused(reason: str, **setting: Any) -> Case:
    """A setting whose recording is refused as it is described."""
    return Case(setting=Setting(**setting), words="refused", sentences="refused", reason=reason)


def rounded(kind: torch.dtype) -> Callable[[Tensor], Tensor]:
    """What a client does that sends its update in another type."""
    return lambda change: change.to(kind).float()


def equal_sentences(generator: torch.Generator) -> Tensor:
    """``(N, L)`` texts that are all the same."""
    return different_words(generator)[:1].repeat(TEXTS, 1)


def different_last_words(generator: torch.Generator) -> Tensor:
    """``(N, L)`` texts that differ in the last word alone."""
    texts = different_words(generator)
    texts[:, :-1] = texts[0, :-1]
    return texts


def with_token_zero(generator: torch.Generator) -> Tensor:
    """``(N, L)`` texts in which a word has the number of padding."""
    return different_words(generator) * (torch.arange(LENGTH) != 2)


def copied_words(generator: torch.Generator) -> Tensor:
    """``(N, L)`` texts of words that have the vectors of others."""
    return COPIED + torch.randperm(100, generator=generator)[: TEXTS * LENGTH].reshape(TEXTS, LENGTH)


def saved(*names: str) -> dict[str, Any]:
    """Layers that are trained whole, and that the auditor names."""
    return {"lora": {"modules_to_save": list(names)}, "said": {"whole": list(names)}}


KINDS = {
    "LoRA": Case(setting=Setting()),
    "before the first step, B is 0": Case(setting=Setting(is_fresh=True), words="exact", sentences="none"),
    "rsLoRA": Case(setting=Setting(lora={"use_rslora": True}, said={"variant": "rslora"})),
    "rsLoRA said LoRA": Case(setting=Setting(lora={"use_rslora": True}), sentences="open"),
    "alpha 8 said 32": Case(setting=Setting(lora={"lora_alpha": 8}), sentences="open"),
    "DoRA": Case(setting=Setting(lora={"use_dora": True}, said={"variant": "dora"})),
    "DoRA said LoRA": refused("4 magnitudes.*variant dora", lora={"use_dora": True}),
    "LoRA said DoRA": refused("found none.*variant lora", said={"variant": "dora"}),
    "biases of adapted layers": Case(
        setting=Setting(network=BIASED, lora={"bias": "lora_only"}, said={"bias": "lora_only"})
    ),
    "all biases": Case(
        setting=Setting(network=BIASED, lora={"bias": "all"}, said={"bias": "all"}), sentences="unclear"
    ),
    "all biases, not said": refused("8 other parameters.*bias all", network=BIASED, lora={"bias": "all"}),
    "biases of B": refused("lora_bias.*without them", network=BIASED, lora={"lora_bias": True}),
    "table of words saved": Case(setting=Setting(**saved("embed_tokens"))),
    "table of words saved, not said": refused(
        r"embed_tokens.*whole \[embed_tokens\]", lora={"modules_to_save": ["embed_tokens"]}
    ),
    "table of words saved, 5 steps": Case(
        setting=Setting(**saved("embed_tokens"), steps=5), words="ranked", sentences="open"
    ),
    "table of words said, not recorded": refused("1 parameters next to.*Record what", said={"whole": ["embed_tokens"]}),
    "output layer saved": Case(setting=Setting(**saved("lm_head"))),
    "output layer saved, 5 steps": Case(setting=Setting(**saved("lm_head"), steps=5), sentences="open"),
    "both saved, tied": Case(setting=Setting(**saved("lm_head", "embed_tokens"), network=TIED)),
    "table of words saved, tied": Case(setting=Setting(**saved("embed_tokens"), network=TIED)),
    "norms saved": Case(setting=Setting(**saved("input_layernorm"))),
    "no such layer saved": refused("adapter.whole among.*found head", said={"whole": ["head"]}),
    "some words trained": refused(
        "trainable_token_indices.*without them", lora={"trainable_token_indices": {"embed_tokens": [1, 2]}}
    ),
    "table of words adapted": refused("lora_embedding_.*first round", targets=("embed_tokens", "q_proj", "v_proj")),
    "tied": Case(setting=Setting(network=TIED)),
    "keys and outputs": Case(setting=Setting(targets=("k_proj", "o_proj"), rank=32)),
    "keys and outputs, rank 16": Case(setting=Setting(targets=("k_proj", "o_proj")), sentences="none"),
    "outputs alone": Case(setting=Setting(targets=("o_proj",), rank=32), words="refused"),
    "outputs alone, rank 16": Case(setting=Setting(targets=("o_proj",)), words="refused", sentences="none"),
    "MLP alone": Case(setting=Setting(targets=("gate_proj", "down_proj"), rank=32), words="refused"),
    "all linear layers": Case(setting=Setting(targets=LINEAR)),
    "names as a regular expression": Case(setting=Setting(lora={"target_modules": r".*\.self_attn\.(q|v)_proj"})),
    "block 0 alone": Case(
        setting=Setting(lora={"layers_to_transform": [0]}, said={"layers": [0]}), sentences="refused"
    ),
    "block 1 alone": Case(setting=Setting(lora={"layers_to_transform": [1]}, said={"layers": [1]}), words="refused"),
    "block 1 alone, not said": refused(r"1\.self_attn\.q_proj.*layers \[1\]", lora={"layers_to_transform": [1]}),
    "no such block": refused("in the layers 7", said={"layers": [7]}),
    "ranks by layer": refused("rank 8 and 16.*of one rank alone", lora={"rank_pattern": {"v_proj": 8}}),
    "another name": Case(setting=Setting(adapter="mine")),
    "another name, names of the network": Case(setting=Setting(adapter="mine", spelling="network")),
    "several adapters": Case(setting=Setting(others=("second",))),
    "several adapters, names of the network": refused(
        "2 adapters.*default, second.*adapter_name", others=("second",), spelling="network"
    ),
}
TRAINING = {
    "norms trained, not sent": Case(setting=Setting(trained=("input_layernorm",))),
    "norms trained in 10 steps, not sent": Case(
        setting=Setting(trained=("input_layernorm",), steps=10), words="ranked", sentences="open"
    ),
    "table of words trained, not sent": Case(setting=Setting(trained=("embed_tokens",))),
    "weight decay": Case(
        setting=Setting(optimizer=(SGD, {"lr": 0.5, "weight_decay": 0.1}), said_local={"weight_decay": 0.1})
    ),
    "weight decay, 5 steps": Case(
        setting=Setting(optimizer=(SGD, {"lr": 0.5, "weight_decay": 0.1}), steps=5, said_local={"weight_decay": 0.1}),
        sentences="open",
    ),
    "weight decay, B is 0": Case(
        setting=Setting(
            optimizer=(SGD, {"lr": 0.5, "weight_decay": 0.1}), is_fresh=True, said_local={"weight_decay": 0.1}
        ),
        words="exact",
        sentences="none",
    ),
    "weight decay of 0.1, not said": Case(
        setting=Setting(optimizer=(SGD, {"lr": 0.5, "weight_decay": 0.1})), words="hidden", sentences="none"
    ),
    "weight decay of 0.0001, not said": Case(
        setting=Setting(optimizer=(SGD, {"lr": 0.5, "weight_decay": 1e-4})), words="ranked", sentences="none"
    ),
    "clip": Case(setting=Setting(max_grad_norm=0.01, said_local={"max_grad_norm": 0.01})),
    "clip of the Trainer": Case(setting=Setting(max_grad_norm=1.0, said_local={"max_grad_norm": 1.0})),
    "clip, not said": Case(setting=Setting(max_grad_norm=0.01), sentences="found"),
    "clip and weight decay": Case(
        setting=Setting(
            max_grad_norm=0.01,
            optimizer=(SGD, {"lr": 0.5, "weight_decay": 0.1}),
            said_local={"max_grad_norm": 0.01, "weight_decay": 0.1},
        )
    ),
    "clip, 5 steps": Case(
        setting=Setting(max_grad_norm=0.01, steps=5, said_local={"max_grad_norm": 0.01}), sentences="found"
    ),
    "accumulated gradients": Case(setting=Setting(micro=1)),
    "Adam": Case(
        setting=Setting(optimizer=(ADAMW, {"lr": 1e-3, "weight_decay": 0.0}), said_local={"optimizer": "adam"}),
        words="ranked",
        sentences="refused",
    ),
    "Adam said SGD": Case(
        setting=Setting(optimizer=(ADAMW, {"lr": 1e-3, "weight_decay": 0.0})), words="ranked", sentences="none"
    ),
    "AdamW": Case(
        setting=Setting(optimizer=(ADAMW, {"lr": 1e-3, "weight_decay": 0.01}), said_local={"optimizer": "adam"}),
        words="ranked",
        sentences="refused",
    ),
    "momentum, 1 step": Case(
        setting=Setting(optimizer=(SGD, {"lr": 0.5, "momentum": 0.9}), said_local={"momentum": 0.9})
    ),
    "momentum, 5 steps": Case(
        setting=Setting(optimizer=(SGD, {"lr": 0.5, "momentum": 0.9}), steps=5, said_local={"momentum": 0.9}),
        sentences="refused",
    ),
    "momentum, 5 steps, not said": Case(
        setting=Setting(optimizer=(SGD, {"lr": 0.5, "momentum": 0.9}), steps=5), sentences="open"
    ),
    "ten times the rate said": Case(setting=Setting(said_local={"learning_rate": 5.0}), sentences="found"),
    "5 steps said 1": Case(setting=Setting(steps=5, said_local={"epochs": 1}), sentences="none"),
    "1 step said 5": Case(setting=Setting(said_local={"epochs": 5}), sentences="open"),
    "dropout": Case(
        setting=Setting(lora={"lora_dropout": 0.1}, said={"dropout": 0.1}), words="ranked", sentences="refused"
    ),
    "dropout, not said": Case(setting=Setting(lora={"lora_dropout": 0.1}), words="ranked", sentences="open"),
}
NUMBERS = {
    "bfloat16": Case(setting=Setting(precision=torch.bfloat16), words="ranked", sentences="none"),
    "float16": Case(setting=Setting(precision=torch.float16), words="ranked", sentences="none"),
    "autocast to bfloat16": Case(setting=Setting(autocast=torch.bfloat16), words="ranked", sentences="none"),
    "sent in bfloat16": Case(setting=Setting(change=rounded(torch.bfloat16)), words="ranked", sentences="none"),
    "sent in float16": Case(setting=Setting(change=rounded(torch.float16)), words="ranked", sentences="none"),
}
TEXTS_AND_COUNTS = {
    "prompts are not predicted": Case(setting=Setting(prompt=3), sentences="found"),
    "words with copies": Case(setting=Setting(copies=0.0), words="exact", sentences="found"),
    "copies of words": Case(setting=Setting(copies=0.0, texts=copied_words), words="hidden", sentences="open"),
    "nearly copies, 0.01": Case(setting=Setting(copies=1e-2, texts=copied_words)),
    "nearly copies, 0.0001": Case(setting=Setting(copies=1e-4, texts=copied_words), words="hidden", sentences="open"),
    # A word that is repeated reads like the word alone, so that texts of one word stand beside the sentence.
    "equal sentences": Case(setting=Setting(texts=equal_sentences)),
    "sentences that differ in the last word": Case(setting=Setting(texts=different_last_words), sentences="open"),
    "words with the number of padding": Case(setting=Setting(texts=with_token_zero), words="ranked", sentences="open"),
    "twice as many sentences reported": Case(setting=Setting(reported=6)),
    "one sentence reported": Case(setting=Setting(reported=1), sentences="open"),
    "a sum of clients": Case(setting=Setting(is_summed=True), sentences="none"),
}
SETTINGS = KINDS | TRAINING | NUMBERS | TEXTS_AND_COUNTS
QUICK = ("DoRA", "output layer saved", "outputs alone", "clip of the Trainer", "several adapters, names of the network")
CLIENTS_OF_SUM = 3


def _words(name: str, case: Case, view: RoundView, words: set[int]) -> None:
    """Checks what the attack on words says."""
    if case.words == "refused":
        with pytest.raises(ViewError, match="several tokens"):
            AdapterWords()(view, generator=generator_for(0, name))
        return
    estimate = run(AdapterWords(), view, WordSetEstimate)
    present = set(estimate.decisions[0].nonzero().flatten().tolist())
    is_certain = bool(estimate.expected[0] == 1)
    assert is_certain == (case.words == "certain")
    if case.words in ("certain", "exact"):
        assert present == words
    if case.words == "ranked":
        assert len(present & words) > len(words) / 2
        assert len(present & words) > len(present) / 2


def _sentences(name: str, case: Case, view: RoundView, texts: Tensor) -> None:
    """Checks what the attack on sentences says."""
    if case.sentences == "refused":
        with pytest.raises(ViewError, match=r"try `adapter-words`|`adapter-words` ranks|above the first attention"):
            AdapterSentences()(view, generator=generator_for(0, name))
        return
    estimate = run(AdapterSentences(), view, SpanEstimate)
    records = estimate.records[0]
    found = {tuple(word for word in record if word) for record in records.tolist()}
    truth = {tuple(text) for text in texts.tolist()}
    certified = estimate.certified
    assert certified is not None
    assert certified[0].tolist() == [case.sentences == "certified"] * len(records)
    predicted = float(estimate.predicted[0])
    if case.sentences in ("certified", "unclear", "found"):
        assert found == truth
    if case.sentences in ("certified", "unclear"):
        assert predicted == 1
    elif case.sentences == "none":
        assert predicted == 0
    else:
        assert torch.isnan(estimate.predicted[0])


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[] if name in QUICK else [pytest.mark.integration]) for name in SETTINGS],
)
def test_a_setting_is_attacked_or_refused_and_nothing_false_is_certain(name: str, tmp_path: Path) -> None:
    case = SETTINGS[name]
    clients = CLIENTS_OF_SUM if case.setting.is_summed else 1
    record(case.setting, tmp_path, clients)
    if case.reason:
        with pytest.raises(InputError, match=case.reason) as error:
            opened(case.setting, tmp_path)
        assert "\n" not in str(error.value)
        return
    _, view = opened(case.setting, tmp_path)
    read = torch.cat([texts_of(case.setting, client)[:, :-1].flatten() for client in range(clients)])
    _words(name, case, view, set(read.tolist()) - {0})
    _sentences(name, case, view, texts_of(case.setting, 0))


@pytest.mark.integration
@pytest.mark.parametrize("network", [{}, TIED])
def test_rows_of_a_table_that_is_trained_whole_are_those_of_the_words_after_several_steps(
    network: dict[str, Any], tmp_path: Path
) -> None:
    setting = Setting(**saved("embed_tokens"), network=network, steps=5)
    record(setting, tmp_path, 1)
    _, view = opened(setting, tmp_path)
    estimate = run(TouchedRows(), view, WordSetEstimate)
    present = set(estimate.decisions[0].nonzero().flatten().tolist())
    assert present == set(texts_of(setting, 0)[:, :-1].flatten().tolist())
    assert float(estimate.expected[0]) == 1


@pytest.mark.integration
@pytest.mark.parametrize(
    ("setting", "said"),
    [
        # What the error of each setting that is refused says, done.
        (Setting(network=BIASED, lora={"bias": "all"}), {"bias": "all"}),
        (Setting(lora={"modules_to_save": ["lm_head"]}), {"whole": ["lm_head"]}),
        (Setting(lora={"use_dora": True}), {"variant": "dora"}),
        (Setting(lora={"layers_to_transform": [0]}), {"layers": [0]}),
        (Setting(lora={"layers_to_transform": [0]}), {"targets": ["0.self_attn.q_proj", "0.self_attn.v_proj"]}),
    ],
)
def test_the_way_out_of_a_refusal_leads_to_the_words(setting: Setting, said: dict[str, Any], tmp_path: Path) -> None:
    record(setting, tmp_path, 1)
    with pytest.raises(InputError, match=r"--learner\.adapter"):
        opened(setting, tmp_path)
    _, view = opened(dataclasses.replace(setting, said=said), tmp_path)
    estimate = run(AdapterWords(), view, WordSetEstimate)
    present = set(estimate.decisions[0].nonzero().flatten().tolist())
    assert present == set(texts_of(setting, 0)[:, :-1].flatten().tolist())
