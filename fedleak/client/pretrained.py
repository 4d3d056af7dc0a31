"""Clients that fine-tune a transformer of the transformers library, whole or by adapters of low rank.

References:
    Hu, Shen, Wallis, Allen-Zhu, Li, Wang, Wang and Chen, "LoRA: Low-Rank Adaptation of Large Language Models", ICLR
    2022, arXiv:2106.09685; Sun, Li, Li and Ding, "Improving LoRA in Privacy-preserving Federated Learning", ICLR 2024,
    arXiv:2403.12313 (FFA-LoRA); Kalajdzievski, "A Rank Stabilization Scaling Factor for Fine-Tuning with LoRA", 2023,
    arXiv:2312.03732 (rsLoRA).
"""

import contextlib
import copy
import functools
import hashlib
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional

from fedleak.client.adapter_shape import check_adapters
from fedleak.client.algorithm import Model, RecordAlgorithm, Shapes
from fedleak.client.cohort import Cohort
from fedleak.client.engine.fast.gradients import Parameters
from fedleak.client.engine.local_hyperparameters import LocalTraining
from fedleak.client.engine.task import DRAWS
from fedleak.client.nets.dropout import Dropout, draw_noise
from fedleak.client.network import is_independent
from fedleak.client.transformer_configs import library, offline, read_configuration
from fedleak.client.transformer_weights import has_weights, read_weights
from fedleak.core.errors import InputError, ViewError, require
from fedleak.core.memory import memory_bound
from fedleak.core.ranges import PositiveFloat, PositiveInt, UnitInterval

PretrainedTask = Literal["causal-lm", "sequence-classification", "image-classification"]
"""What the network predicts: the next token, the class of a text, or that of an image."""
Variant = Literal["lora", "ffa", "rslora", "none"]
"""Adapter: LoRA; with A frozen (FFA-LoRA); with the scale of rsLoRA; or none, where all parameters are trained."""
TOKENS, LABEL, IMAGE = "tokens", "label", "image"
"""Fields of an example: ``(L,)`` token numbers padded with 0, its class, and pixels ``(channels, height, width)``."""
NETWORK = "network."
"""Prefix of the names of a network that is trained whole."""
_KINDS = {
    "causal-lm": "AutoModelForCausalLM",
    "sequence-classification": "AutoModelForSequenceClassification",
    "image-classification": "AutoModelForImageClassification",
}
_MOST_NUMBERS = 2**34
_BYTES_OF_NUMBER = 4
_ATTENTION = "eager"
"""Attention as the library computes it in Python, with gradients of gradients, and without a kernel to fetch."""
_EVERY_LAYER = "all-linear"
_CLASSIFY = ("sequence-classification", "image-classification")
_HEADS = ("pre_classifier", "classifier", "score")
"""Last layers of classifiers, which are new to the task and trained whole next to adapters."""
_TOKENS_AT_ONCE = 4096
_SAME = 1e-4
"""Relative difference of the inputs of a layer below which they are the same."""


@dataclass(frozen=True, kw_only=True)
class AdapterOptions:
    """What of the network is trained.

    Attributes:
        variant: kind of the adapter. The last layer of a classifier is trained too.
        rank: rows of each A, columns of each B.
        alpha: the product ``B A`` is added times ``alpha / rank``, with rsLoRA times ``alpha / sqrt(rank)``; None for
            twice the rank.
        targets: ends of the names of the linear layers that are adapted, or ``all-linear``; empty for those that peft
            adapts by default in a network of this kind, or all if it has no default.
        dropout: probability of a zero in the input of A.
    """

    variant: Variant = "lora"
    rank: PositiveInt = 8
    alpha: PositiveFloat | None = None
    targets: tuple[str, ...] = ()
    dropout: UnitInterval = 0.0


@dataclass(frozen=True)
class FirstInputs:
    """What the first adapted layers read, which no training of adapters changes.

    Attributes:
        vectors: ``(K, d)`` input for each candidate: a token, or a token at a place where places differ.
        tokens: ``(K,)`` token of each.
        adapters: names of A and B of each layer that reads these inputs: in the global model, of a frozen A in the
            network.
    """

    vectors: Tensor
    tokens: Tensor
    adapters: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class LayerInputs:
    """What adapted layers read that read the same.

    Attributes:
        vectors: ``(N, L, d)`` input at each place of each record.
        adapters: names of A and B of each of these layers: in the global model, of a frozen A in the network.
    """

    vectors: Tensor
    adapters: tuple[tuple[str, str], ...]


class _EnoughError(Exception):
    """Ends a forward pass in which no further layer is of interest."""


@dataclass(frozen=True, kw_only=True)
class PretrainedAlgorithm(RecordAlgorithm):
    """Clients that fine-tune a network of the transformers library.

    What is not trained is frozen and public: the server sent it. It is no parameter of the global model and enters no
    recording, which names it by its hash.

    Attributes:
        config: the network's ``config.json``, as text.
        task: what the network predicts.
        adapter: what of it is trained.
        base_seed: seed of the weights of a network that no folder holds, and of the first adapters.
        base: SHA-256 of the frozen tensors; empty for any.
        folder: folder with ``config.json`` and weights as safetensors; None for random weights. Not recorded.
    """

    name: ClassVar[str] = "pretrained"

    config: str
    task: PretrainedTask = "causal-lm"
    adapter: AdapterOptions = AdapterOptions()
    base_seed: int = 0
    base: str = ""
    folder: Path | None = field(default=None, compare=False)

    def arguments(self) -> dict[str, Any]:
        return {name: value for name, value in super().arguments().items() if name != "folder"} | {
            "base": self.base or self.hash
        }

    @functools.cached_property
    def network(self) -> nn.Module:
        """The network with its adapter, in evaluation mode; its trained values are the first global model.

        Raises:
            InputError: there is no such network, it has no such layers, or it is not the one that was recorded.
        """
        network = _built(self.config, self.task, self.adapter, self.base_seed, self.folder)
        for name, value in network.named_parameters():
            value.requires_grad_(self._trains(name))
        if self.base:
            found = _hash_of(
                {n: v for n, v in _values_of(network).items() if n not in self._own_names(network)}
            )  # tied ones are frozen
            require(
                found == self.base,
                f"the base network whose tensors have the SHA-256 {self.base[:12]}...",
                f"{found[:12]}... of {self.folder or 'random weights'}",
                "Name the folder with the weights that the clients were sent (--learner.path DIR).",
            )
        return network

    def _adapted(self) -> nn.Module:
        with offline():
            return self._adapted_offline()

    def _adapted_offline(self) -> nn.Module:
        network = self._base()
        adapter = self.adapter
        if adapter.variant != "none":
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(self.base_seed + 1)
                network = self._with_adapter(network, list(adapter.targets) or None)
        for module in list(network.modules()):
            for name, layer in list(module.named_children()):
                if isinstance(layer, nn.Dropout):
                    setattr(module, name, Dropout(layer.p))
        return network.eval()

    def _with_adapter(self, network: nn.Module, targets: list[str] | None) -> nn.Module:
        from peft import LoraConfig, get_peft_model  # slow to import

        adapter = self.adapter
        heads = [name for name in _HEADS if hasattr(network, name)] if self.task in _CLASSIFY else None
        wanted = LoraConfig(
            r=adapter.rank,
            lora_alpha=adapter.alpha or 2 * adapter.rank,  # type: ignore[arg-type]
            target_modules="all-linear" if targets == [_EVERY_LAYER] else targets,
            lora_dropout=adapter.dropout,
            use_rslora=adapter.variant == "rslora",
            modules_to_save=heads,
            exclude_modules=heads,
        )
        try:
            made: nn.Module = get_peft_model(network, wanted)
        except ValueError as error:
            if targets is None:  # peft knows no default for this kind of network
                return self._with_adapter(network, [_EVERY_LAYER])
            linear = [name for name, layer in network.named_modules() if isinstance(layer, nn.Linear)]
            raise InputError(
                expected=f"adapter.targets among the layers of the network, e.g. {', '.join(linear[:3])}",
                found=f"{', '.join(targets)} ({str(error).partition('.')[0]})",
                way_out=f"Name ends of their names, e.g. q_proj, or {_EVERY_LAYER}.",
            ) from None
        return made

    def _base(self) -> nn.Module:
        """The network without adapters; of the recording's text, sizes and kinds of layers alone are read."""
        config = read_configuration(self.config)
        kind = getattr(library(), _KINDS[self.task])
        try:
            # On the meta device, values take no memory. Attention is named in each call: left open, the library takes
            # that of the configuration, whose name may be one of a kernel to fetch.
            with torch.device("meta"):
                empty = kind.from_config(config, attn_implementation=_ATTENTION)
            self._check_size(empty)
            if self.has_weights:
                assert self.folder is not None
                made = type(empty).from_pretrained(
                    None,
                    config=config,
                    state_dict=read_weights(self.folder),
                    attn_implementation=_ATTENTION,
                    local_files_only=True,
                    use_safetensors=True,
                )
            else:
                with torch.random.fork_rng(devices=[]):
                    torch.manual_seed(self.base_seed)
                    made = kind.from_config(config, attn_implementation=_ATTENTION)
        except InputError:
            raise
        except Exception as error:  # whatever the code of a network raises for sizes that do not go together
            raise InputError(
                expected=f"a network for {self.task} of the transformers library",
                found=f"{getattr(config, 'model_type', 'another')}: {_first_line(error)}",
                way_out="Take a config.json of a network with this task, or another task.",
            ) from None
        network: nn.Module = made.float()
        return network

    def _check_size(self, network: nn.Module) -> None:
        """Checks that memory holds a network and its adapters, before any is taken.

        Raises:
            InputError: it does not.
        """
        size = sum(value.numel() for value in _values_of(network).values())
        tables = [value.shape for value in network.parameters() if value.dim() == 2]
        # Matrices A (rank, inputs) and B (outputs, rank), at most of all layers with a table of weights.
        added = 0 if self.adapter.variant == "none" else self.adapter.rank * sum(map(sum, tables))
        most = min(_MOST_NUMBERS, memory_bound() // _BYTES_OF_NUMBER)
        require(
            size + added <= most,
            f"a network of at most {most} numbers with its adapters, half of what this machine's memory holds",
            str(size + added),
            "Take a smaller one, or a machine with more memory.",
        )

    @property
    def has_weights(self) -> bool:
        """Whether the folder holds the weights, so that they are not drawn from the seed.

        Raises:
            InputError: it holds weights in another format alone.
        """
        return self.folder is not None and has_weights(self.folder)

    def _trains(self, name: str) -> bool:
        if self.adapter.variant == "none":
            return True
        return (
            ".lora_B." in name or (".lora_A." in name and self.adapter.variant != "ffa") or ".modules_to_save." in name
        )

    def _own_names(self, network: nn.Module) -> dict[str, str]:
        """Names of the trained parameters in the network, and in the global model."""
        return {name: self._public_name(name) for name, _ in network.named_parameters() if self._trains(name)}

    def _public_name(self, name: str) -> str:
        return NETWORK + name if self.adapter.variant == "none" else _spelled(name)

    @functools.cached_property
    def names(self) -> dict[str, str]:
        """Name in the network by the name of each parameter of the global model."""
        return {public: own for own, public in self._own_names(self.network).items()}

    @functools.cached_property
    def _tied(self) -> dict[str, str]:
        """Trained parameter by each further name that it has in the network."""
        held = {id(value): name for name, value in self.network.named_parameters()}
        everything = self.network.named_parameters(remove_duplicate=False)
        trained = set(self.names.values())
        return {name: held[id(v)] for name, v in everything if held[id(v)] != name and held[id(v)] in trained}

    @functools.cached_property
    def frozen(self) -> dict[str, Tensor]:
        """What is not trained, by its name in the network."""
        trained = {*self.names.values(), *self._tied}
        return {name: value.detach() for name, value in _values_of(self.network).items() if name not in trained}

    @functools.cached_property
    def hash(self) -> str:
        """SHA-256 of the frozen tensors."""
        return _hash_of(self.frozen)

    def first_model(self) -> dict[str, Tensor]:
        """The global model before the first round."""
        held = dict(self.network.named_parameters())
        return {public: held[own].detach().clone() for public, own in self.names.items()}

    def save(self, model: Model, folder: Path) -> None:
        """Writes the network with a global model's values to a folder: whole, or the adapters alone."""
        network = copy.deepcopy(self.network)
        with torch.no_grad():
            held = dict(network.named_parameters())
            for public, own in self.names.items():
                held[own].copy_(model[public])
        # peft asks the Hub whether a base network of that name has as many words, unless it is told.
        options = {} if self.adapter.variant == "none" else {"save_embedding_layers": False}
        with offline():
            network.save_pretrained(folder, **options)  # type: ignore[operator]

    @property
    def vocabulary(self) -> int:
        """Number of token numbers."""
        return int(self.network.config.vocab_size)  # type: ignore[union-attr, arg-type]

    @functools.cached_property
    def random(self) -> bool:
        return any(isinstance(layer, Dropout) and layer.probability > 0 for layer in self.network.modules())

    @functools.cached_property
    def _copies(self) -> threading.local:
        return threading.local()

    @property
    def template(self) -> nn.Module:
        """Copy without values of the calling thread, because `functional_call` swaps them while it runs."""
        if not hasattr(self._copies, "network"):
            self._copies.network = copy.deepcopy(self.network).to("meta")
        network: nn.Module = self._copies.network
        return network

    def network_shapes(self, held: Shapes) -> dict[str, tuple[int, ...]]:
        """Shapes of the trained parameters.

        Raises:
            InputError: `held` are no adapters, or others, see `check_adapters`.
        """
        if self.adapter.variant != "none":
            own = dict(self.network.named_parameters())
            expected = {public: tuple(own[name].shape) for name, public in self._own_names(self.network).items()}
            check_adapters(expected, {self._plain_name(name): shape for name, shape in held.items()})
        return {name: tuple(value.shape) for name, value in self.first_model().items()}

    def _plain_name(self, name: str) -> str:
        """Name that a recording of this project has for a parameter in a recording of another system."""
        if self.adapter.variant == "none":
            return NETWORK + name.removeprefix(NETWORK)
        return _spelled(name.removeprefix("model."))

    def named_as(self, held: Shapes) -> Self:
        """Takes three spellings of adapters: peft's state dict, `named_parameters`, and a prefix ``model.``."""
        plain = {self._plain_name(name): name for name in held}
        if not set(plain) <= set(self.names) or all(name in held for name in self.names):
            return self
        made = copy.copy(self)
        made.__dict__["names"] = {plain[public]: own for public, own in self.names.items() if public in plain}
        return made

    def outputs(self, parameters: Parameters, examples: Parameters) -> Tensor:
        """Logits ``(N, L, V)`` after each token, or ``(N, K)``."""
        values = self._values(parameters)
        given = self._given(examples, next(iter(parameters.values())))
        found: Tensor = functional_call(self.template, values, (), given, tie_weights=False).logits
        return found

    def _given(self, examples: Parameters, like: Tensor) -> dict[str, Tensor]:
        """Arguments of the network; pixels in the type of another tensor."""
        if self.task == "image-classification":
            images = examples[IMAGE]
            return {"pixel_values": images.to(like) / 255 if images.dtype == torch.uint8 else images.to(like)}
        if self.task == "sequence-classification":
            return {"input_ids": examples[TOKENS], "attention_mask": (examples[TOKENS] > 0).long()}
        return {"input_ids": examples[TOKENS]}

    def _values(self, parameters: Parameters) -> dict[str, Tensor]:
        """Values of the network, by its names, for those of the global model."""
        trained = {own: parameters[public] for public, own in self.names.items()}
        trained |= {name: trained[own] for name, own in self._tied.items()}
        like = next(iter(trained.values()))
        frozen = self.frozen.items()
        return {
            **{name: value.to(like if value.is_floating_point() else like.device) for name, value in frozen},
            **trained,
        }

    def first_inputs(self, places: int) -> FirstInputs:
        """Inputs of the first adapted layers for every token, at up to some number of ``places`` of a text.

        Raises:
            ViewError: the network reads no tokens, has no adapters, or its first adapted layers read what depends on
                other tokens of the text.
        """
        if self.task == "image-classification" or self.adapter.variant == "none":
            raise ViewError("expected adapters of a network that reads tokens; got another")
        generator = torch.Generator().manual_seed(0)
        probe = torch.randint(1, self.vocabulary, (4, places), generator=generator)
        mixed, names = self._read_first(probe)
        single = torch.arange(1, self.vocabulary)[:, None]  # 0 is padding
        alone = torch.cat([self._read_first(part)[0] for part in _parts(single, _TOKENS_AT_ONCE)])[:, 0]
        tokens = single.flatten()
        if not _alike(mixed, alone[probe - 1]):
            repeated = _parts(single.expand(-1, places), max(1, _TOKENS_AT_ONCE // places))
            everywhere = torch.cat([self._read_first(part)[0] for part in repeated])
            if not _alike(mixed, everywhere[probe - 1, torch.arange(places)]):
                raise ViewError(
                    "expected adapters below all attention; the first ones read a mixture of several tokens"
                )
            alone, tokens = everywhere.flatten(0, 1), tokens.repeat_interleave(places)
        return FirstInputs(alone, tokens, self._adapters(names))

    def adapted_inputs(
        self, parameters: Model, inputs: Tensor, *, most: int | None = None, layers: int | None = None
    ) -> list[LayerInputs]:
        """What the adapted layers of a global model read for records ``(N, *shape)``, in the order of their reading.

        Args:
            parameters: the global model.
            inputs: texts ``(N, L)`` or images.
            most: number of different inputs that are needed; None for all.
            layers: number of layers after whose reading the network need not go on; None for all.
        """
        examples = self._examples(inputs, torch.zeros(len(inputs)))
        given = self._given(examples, next(iter(parameters.values())))
        found = self._read(given, values=self._values(dict(parameters)), most=most, stop=layers)
        return [LayerInputs(vectors, self._adapters(names)) for vectors, names in found]

    def _adapters(self, layers: Sequence[str]) -> tuple[tuple[str, str], ...]:
        """Names of A and B of adapted layers."""
        own = {value: public for public, value in self.names.items()}
        pairs = [tuple(f"{name}.{part}.default.weight" for part in ("lora_A", "lora_B")) for name in layers]
        return tuple((own.get(a, a), own[b]) for a, b in pairs)

    def _read_first(self, tokens: Tensor) -> tuple[Tensor, list[str]]:
        """``(N, L, d)`` input of the first adapted layers for texts ``(N, L)``, and the names of these layers."""
        return self._read({"input_ids": tokens}, most=1)[0]

    @torch.no_grad()
    def _read(
        self,
        given: Mapping[str, Tensor],
        *,
        values: Mapping[str, Tensor] | None = None,
        most: int | None = None,
        stop: int | None = None,
    ) -> list[tuple[Tensor, list[str]]]:
        """Inputs ``(N, L, d)`` of adapted layers without dropout, each with the names of the layers that read it.

        Args:
            given: arguments of the network.
            values: values of the network; None for those of the first model.
            most: number of different inputs that are needed; None for all.
            stop: number of layers after whose reading the forward pass ends; None for all.
        """
        read: list[tuple[Tensor, list[str]]] = []
        network = self.network if values is None else self.template
        layers = [(name, layer) for name, layer in network.named_modules() if hasattr(layer, "lora_A")]

        def seen(name: str, given: Tensor) -> None:
            known = [names for vectors, names in read if vectors is given]
            if not known and len(read) == most:
                raise _EnoughError
            if known:
                known[0].append(name)
            else:
                read.append((given, [name]))
            if sum(len(names) for _, names in read) == (stop or len(layers)):
                raise _EnoughError  # the last layer is slow: it has a row for every token

        draw_noise(network, None)
        hooks = [
            layer.register_forward_pre_hook(lambda _, read, name=name: seen(name, read[0])) for name, layer in layers
        ]
        try:
            with contextlib.suppress(_EnoughError):
                functional_call(network, dict(values or {}), (), dict(given), tie_weights=False)
        finally:
            for hook in hooks:
                hook.remove()
        return read

    def places(self, inputs: Tensor) -> Tensor:
        """``(M, L)`` or, of images, ``(M, 1)`` bool: tokens that have a part in the loss of their record."""
        if self.task == "causal-lm":
            return functional.pad(inputs[:, 1:] > 0, (0, 1))
        return inputs > 0 if self.task == "sequence-classification" else torch.ones(len(inputs), 1, dtype=torch.bool)

    def loss(self, parameters: Parameters, examples: Parameters, mask: Tensor) -> Tensor:
        draw_noise(self.template, examples[DRAWS] if self.random else None)
        logits = self.outputs(parameters, examples)
        each, real = self._losses(logits, examples)
        real = real & mask.reshape(-1, *[1] * (real.dim() - 1))
        return (each * real).sum() / real.sum().clamp(min=1)

    def _losses(self, logits: Tensor, examples: Parameters) -> tuple[Tensor, Tensor]:
        """Losses ``(N,)``, or ``(N, L - 1)`` of the tokens after the first, and which of them count."""
        if self.task != "causal-lm":
            each = functional.cross_entropy(logits, examples[LABEL].long(), reduction="none")
            return each, torch.ones_like(each, dtype=torch.bool)
        following = examples[TOKENS][:, 1:]
        each = functional.cross_entropy(logits[:, :-1].flatten(0, 1), following.flatten(), reduction="none")
        return each.reshape(following.shape), following > 0

    @functools.cached_property
    def independent(self) -> bool:
        return is_independent(self.network)

    def record_losses(self, parameters: Parameters, inputs: Tensor, labels: Tensor) -> Tensor:
        """Of a text, the mean over the tokens after the first."""
        draw_noise(self.template, None)
        examples = self._examples(inputs, labels)
        each, real = self._losses(self.outputs(parameters, examples), examples)
        return each if each.dim() == 1 else (each * real).sum(1) / real.sum(1).clamp(min=1)

    def record_sizes(self, inputs: Tensor) -> Tensor:
        return (inputs[:, 1:] > 0).sum(1).float() if self.task == "causal-lm" else super().record_sizes(inputs)

    def _examples(self, inputs: Tensor, labels: Tensor) -> dict[str, Tensor]:
        return {IMAGE if self.task == "image-classification" else TOKENS: inputs, LABEL: labels}

    def encode(self, features: Tensor, labels: Tensor, examples: Tensor) -> tuple[Self, Cohort]:
        chosen = examples.clamp(min=0)
        fields = self._examples(features[chosen], labels[chosen])
        return self, Cohort(0, torch.arange(len(examples)), fields, examples >= 0)


@functools.lru_cache(maxsize=2)
def _built(
    config: str, task: PretrainedTask, adapter: AdapterOptions, base_seed: int, folder: Path | None
) -> nn.Module:
    """The network of these options; kept, because each reading of a recording's learner makes a new algorithm."""
    options = {"config": config, "task": task, "adapter": adapter, "base_seed": base_seed, "folder": folder}
    return PretrainedAlgorithm(local=LocalTraining(), **options)._adapted()  # type: ignore[arg-type]


def _parts(tokens: Tensor, size: int) -> Sequence[Tensor]:
    parts: Sequence[Tensor] = torch.split(tokens, size)
    return parts


def _first_line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)[:160]


def _spelled(name: str) -> str:
    """A parameter's name in peft's state dict."""
    return name.replace(".modules_to_save.default.", ".").replace(".default.", ".")


def _alike(found: Tensor, expected: Tensor) -> bool:
    return bool((found - expected).norm() <= _SAME * expected.norm())


def _values_of(network: nn.Module) -> dict[str, Tensor]:
    """Parameters and buffers, tied ones under each of their names."""
    return {
        **dict(network.named_parameters(remove_duplicate=False)),
        **dict(network.named_buffers(remove_duplicate=False)),
    }


def _hash_of(values: Mapping[str, Tensor]) -> str:
    found = hashlib.sha256()
    for name in sorted(values):
        found.update(name.encode())
        found.update(values[name].detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return found.hexdigest()
