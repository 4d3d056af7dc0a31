"""Settings in which clients fine-tune adapters with peft, and what the auditor says of them: a recording for each."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, PeftModel, get_peft_model, get_peft_model_state_dict
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM

from fedleak.commands.shared.open_recording import open_recording
from fedleak.core.view import RoundView
from fedleak.recordings.recorded_learner import recorded_learner
from fedleak.recordings.recording import Recording
from fedleak_recorder import Recorder

VOCABULARY, TEXTS, LENGTH, RATE = 400, 3, 6, 0.5
COPIED = 300
"""First of the words that have the vectors of others, where a setting copies them."""
State = dict[str, Tensor]


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What clients do, and what the auditor says that they do.

    Attributes:
        rank: rank of the adapters.
        targets: ends of the names of adapted layers.
        lora: further options of peft's `LoraConfig`.
        network: further options of the network.
        trained: parts of names of parameters that are trained too, and not sent.
        is_fresh: whether B is zero, as before the first step.
        copies: standard deviation by which the words from `COPIED` on differ from the first ones; None for others.
        texts: a client's texts ``(N, L)``, of a generator; None for different words.
        precision: type of the network's numbers.
        autocast: type in which clients compute; None for that of the network.
        optimizer: its class, and its options.
        steps: local steps, each on all texts.
        micro: texts in a backward pass, whose gradients are added up.
        max_grad_norm: norm to which a step's gradient is clipped; None for no clip.
        prompt: number of words at the beginning that are not predicted.
        change: what a client does with its update before it sends it.
        adapter: the adapter's own name.
        others: names of further adapters of the network, which clients do not train.
        spelling: names of the recorded parameters: of peft's state dict, or of the network.
        is_summed: whether each client's update is the sum of all.
        reported: number of texts that a client reports; None for the true one.
        said: options of the adapter that the auditor gives besides rank, alpha and targets.
        said_local: options of the local training that the auditor gives besides the true rate and epochs.
    """

    rank: int = 16
    targets: Sequence[str] = ("q_proj", "v_proj")
    lora: Mapping[str, Any] = field(default_factory=dict)
    network: Mapping[str, Any] = field(default_factory=dict)
    trained: Sequence[str] = ()
    is_fresh: bool = False
    copies: float | None = None
    texts: Callable[[torch.Generator], Tensor] | None = None
    precision: torch.dtype = torch.float32
    autocast: torch.dtype | None = None
    optimizer: tuple[type[torch.optim.Optimizer], Mapping[str, Any]] = (torch.optim.SGD, {"lr": RATE})
    steps: int = 1
    micro: int = TEXTS
    max_grad_norm: float | None = None
    prompt: int = 0
    change: Callable[[Tensor], Tensor] | None = None
    adapter: str = "default"
    others: Sequence[str] = ()
    spelling: str = "state dict"
    is_summed: bool = False
    reported: int | None = None
    said: Mapping[str, Any] = field(default_factory=dict)
    said_local: Mapping[str, Any] = field(default_factory=dict)


def different_words(generator: torch.Generator) -> Tensor:
    """``(N, L)`` words of which none occurs twice, and none has a copy."""
    return 1 + torch.randperm(VOCABULARY - 101, generator=generator)[: TEXTS * LENGTH].reshape(TEXTS, LENGTH)


def texts_of(setting: Setting, client: int) -> Tensor:
    """``(N, L)`` texts of a client."""
    generator = torch.Generator().manual_seed(100 + client)
    draw = setting.texts or different_words
    return draw(generator)


def save_base(setting: Setting, folder: Path) -> None:
    """Writes the network that the server sends to everyone before the training."""
    sizes = {
        "vocab_size": VOCABULARY,
        "hidden_size": 64,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
        "max_position_embeddings": 64,
        "tie_word_embeddings": False,
    }
    with torch.random.fork_rng():
        torch.manual_seed(5)
        network = LlamaForCausalLM(LlamaConfig(**sizes | dict(setting.network)))
        if setting.copies is not None:
            embeddings: Any = network.get_input_embeddings()
            table: Tensor = embeddings.weight.data
            noise = torch.randn(VOCABULARY - COPIED, table.shape[1]) * table.std()
            table[COPIED:] = table[: VOCABULARY - COPIED] + setting.copies * noise
        network.save_pretrained(folder)


def adapted(setting: Setting, base: Path) -> PeftModel:
    """The network with its adapters, as the server sends it."""
    options: dict[str, Any] = {
        "r": setting.rank,
        "lora_alpha": 2 * setting.rank,
        "target_modules": list(setting.targets),
        "task_type": "CAUSAL_LM",
    }
    with torch.random.fork_rng(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(1)
        configuration = LoraConfig(**options | dict(setting.lora))
        network = LlamaForCausalLM.from_pretrained(base)
        model = get_peft_model(network, configuration, adapter_name=setting.adapter, autocast_adapter_dtype=False)
        for other in setting.others:
            model.add_adapter(other, configuration)
        model = model.to(setting.precision)
        for name, value in model.named_parameters():
            if any(part in name for part in setting.trained):
                value.requires_grad_(True)
        # B has moved in earlier rounds.
        torch.manual_seed(2)
        for name, value in model.named_parameters():
            if "lora_B" in name and not setting.is_fresh:
                value.data = (0.05 * torch.randn(value.shape)).to(value.dtype)
    return model


def sent_by(setting: Setting, model: PeftModel) -> State:
    """A copy of what clients send, in float32."""
    if setting.spelling == "state dict":
        values = get_peft_model_state_dict(model, adapter_name=setting.adapter)
    else:
        values = {name: value for name, value in model.named_parameters() if "lora_" in name}
    return {name: value.detach().float().clone() for name, value in values.items()}


def train(setting: Setting, model: PeftModel, texts: Tensor) -> None:
    """A client's local training."""
    trained = [value for value in model.parameters() if value.requires_grad]
    kind, options = setting.optimizer
    optimizer = kind(trained, **options)
    model.train()
    for _ in range(setting.steps):
        optimizer.zero_grad()
        for part in torch.split(texts, setting.micro):
            labels = part.clone()
            labels[:, : setting.prompt] = -100
            is_mixed = setting.autocast is not None
            with torch.autocast("cpu", setting.autocast or torch.bfloat16, enabled=is_mixed):
                loss = model(input_ids=part, labels=labels).loss
            (loss * len(part) / len(texts)).backward()
        if setting.max_grad_norm is not None:
            torch.nn.utils.clip_grad_norm_(trained, setting.max_grad_norm)
        optimizer.step()


def record(setting: Setting, folder: Path, clients: int) -> None:
    """Writes the base network and a recording of one round."""
    save_base(setting, folder / "base")
    model = adapted(setting, folder / "base")
    whole = {name: value.detach().clone() for name, value in model.state_dict().items()}
    before = sent_by(setting, model)
    updates = dict[str, State]()
    truth = {}
    for client in range(clients):
        model.load_state_dict(whole)
        texts = texts_of(setting, client)
        with torch.random.fork_rng():
            torch.manual_seed(10 + client)
            train(setting, model, texts)
        after = sent_by(setting, model)
        if setting.change is not None:
            after = {name: before[name] + setting.change(value - before[name]) for name, value in after.items()}
        updates[f"c{client}"] = after
        truth[f"c{client}"] = {"words": texts.flatten().tolist(), "read_words": texts[:, :-1].flatten().tolist()}
    if setting.is_summed:
        total = {name: before[name] + sum(u[name] - before[name] for u in updates.values()) for name in before}
        updates = dict.fromkeys(updates, total)
    counts = setting.reported or TEXTS
    with Recorder(folder / "deltas", parameters=before, data="adapters", key=b"0" * 32) as recorder:
        recorder.round(0, before, {name: (sent, counts) for name, sent in updates.items()}, truth=truth)


def opened(setting: Setting, folder: Path) -> tuple[Recording, RoundView]:
    """The recording with the learner that the auditor names, and what the server saw in its round."""
    said = {"rank": setting.rank, "targets": list(setting.targets), "alpha": 2.0 * setting.rank} | dict(setting.said)
    rate = setting.optimizer[1]["lr"]
    local = {"learning_rate": rate, "batch_size": None, "epochs": setting.steps} | dict(setting.said_local)
    options = {"path": str(folder / "base"), "adapter": said, "local": local}
    recording = open_recording(folder / "deltas", "Pretrained", options)
    return recording, next(iter(recording.views(learner=recorded_learner(recording))))
