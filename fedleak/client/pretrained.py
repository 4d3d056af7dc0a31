"""Clients that fine-tune a transformer of the transformers library, whole or by adapters of low rank."""

import copy
import functools
import shutil
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn
from torch.func import functional_call

from fedleak.client.adapted_layers import FirstInputs, LayerInputs, first_vectors, read_inputs
from fedleak.client.adapter_shape import check_adapters, check_one_adapter
from fedleak.client.adapters import AdapterOptions, matrix_names, state_dict_name
from fedleak.client.algorithm import Model, RecordAlgorithm, Shapes
from fedleak.client.cohort import Cohort
from fedleak.client.engine.fast.gradients import Parameters
from fedleak.client.engine.task import DRAWS
from fedleak.client.nets.dropout import Dropout, draw_noise
from fedleak.client.network import is_independent
from fedleak.client.network_tokens import FILE as TOKENIZER
from fedleak.client.network_tokens import NetworkTokens, exchanged, network_tokens
from fedleak.client.pretrained_examples import (
    IMAGE,
    LABEL,
    TOKENS,
    example_losses,
    network_arguments,
    token_logits,
    tokens_in_loss,
)
from fedleak.client.transformer_configs import offline
from fedleak.client.transformer_networks import PretrainedTask, adapted_network, tensor_hash, tensors_of
from fedleak.client.transformer_weights import has_weights
from fedleak.core.errors import ViewError, require
from fedleak.core.ranges import NonNegativeInt

NETWORK = "network."
"""Prefix of the names of a network that is trained whole."""


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
        padding: number that the network gives to padding, which is 0 in examples; the network's 0 is this number there,
            see `fedleak.client.network_tokens`.
        folder: folder with ``config.json`` and weights as safetensors; None for random weights. Not recorded.
    """

    name: ClassVar[str] = "pretrained"

    config: str
    task: PretrainedTask = "causal-lm"
    adapter: AdapterOptions = AdapterOptions()  # noqa: RUF009 - frozen
    base_seed: int = 0
    base: str = ""
    padding: NonNegativeInt = 0
    folder: Path | None = field(default=None, compare=False)

    def arguments(self) -> dict[str, Any]:
        arguments = super().arguments()
        del arguments["folder"]
        # Recordings of before have no such number, and nor has one in which it is 0.
        if self.padding == 0:
            del arguments["padding"]
        return arguments | {"base": self.base or self.hash}

    @functools.cached_property
    def network(self) -> nn.Module:
        """The network with its adapter, in evaluation mode; its trained values are the first global model.

        Raises:
            InputError: there is no such network, it has no such layers, or it is not the one that was recorded.
        """
        network = adapted_network(self.config, self.task, self.adapter, self.base_seed, self.folder)
        for name, value in network.named_parameters():
            value.requires_grad_(self.adapter.trains(name))
        if self.base:
            # As in `frozen`: a trained tensor counts as trained under each of its names.
            trained = {id(value) for name, value in network.named_parameters() if self.adapter.trains(name)}
            frozen = {name: value for name, value in tensors_of(network).items() if id(value) not in trained}
            base_hash = tensor_hash(frozen)
            require(
                base_hash == self.base,
                f"the base network whose tensors have the SHA-256 {self.base[:12]}...",
                f"{base_hash[:12]}... of {self.folder or 'random weights'}",
                "Name the folder with the weights that the clients were sent (--learner.path DIR).",
            )
        return network

    @property
    def has_weights(self) -> bool:
        """Whether the folder holds the weights, so that they are not drawn from the seed.

        Raises:
            InputError: it holds weights in another format alone.
        """
        return self.folder is not None and has_weights(self.folder)

    @property
    def tokens(self) -> NetworkTokens | None:
        """The tokens that the network reads; None where its folder has none."""
        if self.folder is None or not (self.folder / TOKENIZER).exists():
            return None
        return network_tokens(self.folder)

    def _own_names(self, network: nn.Module) -> dict[str, str]:
        """Names of the trained parameters in the network, and in the global model."""
        trained = [name for name, _ in network.named_parameters() if self.adapter.trains(name)]
        return {name: self._public_name(name) for name in trained}

    def _public_name(self, name: str) -> str:
        if self.adapter.variant == "none":
            return NETWORK + name
        return state_dict_name(name)

    @functools.cached_property
    def names(self) -> dict[str, str]:
        """Name in the network by the name of each parameter of the global model."""
        return {public: inner for inner, public in self._own_names(self.network).items()}

    @functools.cached_property
    def _tied(self) -> dict[str, str]:
        """Trained parameter by each further name that it has in the network."""
        first_names = {id(value): name for name, value in self.network.named_parameters()}
        trained = set(self.names.values())
        tied = {}
        for name, value in self.network.named_parameters(remove_duplicate=False):
            first_name = first_names[id(value)]
            if name != first_name and first_name in trained:
                tied[name] = first_name
        return tied

    @functools.cached_property
    def frozen(self) -> dict[str, Tensor]:
        """What is not trained, by its name in the network."""
        trained = {*self.names.values(), *self._tied}
        return {name: value.detach() for name, value in tensors_of(self.network).items() if name not in trained}

    @functools.cached_property
    def hash(self) -> str:
        """SHA-256 of the frozen tensors."""
        return tensor_hash(self.frozen)

    def first_model(self) -> dict[str, Tensor]:
        """The global model before the first round."""
        values = dict(self.network.named_parameters())
        return {public: values[inner].detach().clone() for public, inner in self.names.items()}

    def save(self, model: Model, folder: Path) -> None:
        """Writes the network with a global model's values to a folder: whole, or the adapters alone."""
        network = copy.deepcopy(self.network)
        with torch.no_grad():
            values = dict(network.named_parameters())
            for public, inner in self.names.items():
                values[inner].copy_(model[public])
        # peft asks the Hub whether a base network of that name has as many words, unless it is told.
        options = {}
        if self.adapter.variant != "none":
            options["save_embedding_layers"] = False
        with offline():
            network.save_pretrained(folder, **options)  # type: ignore[operator]
        if self.folder is not None and self.tokens is not None:
            shutil.copyfile(self.folder / TOKENIZER, folder / TOKENIZER)

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
            # Values are put in place before the copy is made, so that memory never holds them twice.
            empty = {id(value): _without_values(value) for value in tensors_of(self.network).values()}
            self._copies.network = copy.deepcopy(self.network, empty)
        network: nn.Module = self._copies.network
        return network

    def network_shapes(self, recorded: Shapes) -> dict[str, tuple[int, ...]]:
        """Shapes of the trained parameters.

        Raises:
            InputError: `recorded` are no adapters, or others, see `check_adapters`.
        """
        if self.adapter.variant != "none":
            values = dict(self.network.named_parameters())
            expected = {}
            for inner, public in self._own_names(self.network).items():
                expected[public] = tuple(values[inner].shape)
            check_one_adapter(recorded)
            plain_shapes = {self._plain_name(name): shape for name, shape in recorded.items()}
            check_adapters(expected, plain_shapes, self.adapter)
        return {name: tuple(value.shape) for name, value in self.first_model().items()}

    def _plain_name(self, name: str) -> str:
        """Name that a recording of this project has for a parameter in a recording of another system."""
        if self.adapter.variant == "none":
            return NETWORK + name.removeprefix(NETWORK)
        return state_dict_name(name.removeprefix("model."))

    def named_as(self, recorded: Shapes) -> Self:
        """Takes three spellings of adapters: peft's state dict, `named_parameters`, and a prefix ``model.``."""
        plain = {self._plain_name(name): name for name in recorded}
        known = set(plain) <= set(self.names)
        same = all(name in recorded for name in self.names)
        if not known or same:
            return self
        algorithm = copy.copy(self)
        algorithm.__dict__["names"] = {plain[public]: inner for public, inner in self.names.items() if public in plain}
        return algorithm

    def outputs(self, parameters: Parameters, examples: Parameters) -> Tensor:
        """Logits ``(N, L, V)`` after each token, or ``(N, K)``."""
        values = self._values(parameters)
        arguments = network_arguments(self.task, examples, next(iter(parameters.values())), self.padding)
        logits: Tensor = functional_call(self.template, values, (), arguments, tie_weights=False).logits
        if self.task == "causal-lm":
            return token_logits(logits, self.padding)
        return logits

    def vector_outputs(self, parameters: Parameters, vectors: Tensor) -> Tensor:
        """Logits as in `outputs`, of texts without padding that are given as vectors ``(N, L, D)`` of their tokens."""
        values = self._values(parameters)
        arguments = {"inputs_embeds": vectors}
        logits: Tensor = functional_call(self.template, values, (), arguments, tie_weights=False).logits
        if self.task == "causal-lm":
            return token_logits(logits, self.padding)
        return logits

    def by_token(self, table: Tensor) -> Tensor:
        """Rows ``(V, ...)`` of the network's tokens, as examples number them."""
        return table[exchanged(torch.arange(len(table)), self.padding)]

    @functools.cached_property
    def word_table(self) -> str:
        """Name of the vectors of the tokens, in the global model if they are trained, else in the network."""
        table = self.network.get_input_embeddings().weight  # type: ignore[operator]
        inner = next(name for name, value in self.network.named_parameters() if value is table)
        public_names = {inner_name: public for public, inner_name in self.names.items()}
        return public_names.get(inner, inner)

    def _values(self, parameters: Parameters) -> dict[str, Tensor]:
        """Values of the network, by its names, for those of the global model."""
        values = {}
        trained = {inner: parameters[public] for public, inner in self.names.items()}
        trained |= {name: trained[inner] for name, inner in self._tied.items()}
        # What is frozen follows the device of the trained values, and numbers their precision, e.g. float64.
        like = next(iter(trained.values()))
        for name, value in self.frozen.items():
            values[name] = value.to(like) if value.is_floating_point() else value.to(like.device)
        return values | trained

    def network_values(self, model: Model) -> dict[str, Tensor]:
        """Values of the whole network, by its names, for the parameters of a global model."""
        return self._values(dict(model))

    def first_inputs(self, positions: int, model: Model | None = None) -> FirstInputs:
        """Inputs of the first adapted layers for every token, at up to some number of ``positions`` of a text.

        Args:
            positions: largest number of places of a text.
            model: global model that is trained also below the adapters; None for the first one.

        Raises:
            ViewError: the network reads no tokens, or has no adapters.
            MixedInputsError: its first adapted layers read what depends on other tokens of the text.
        """
        if self.task == "image-classification" or self.adapter.variant == "none":
            raise ViewError("expected adapters of a network that reads tokens; got another")
        network = self.network
        values = None
        if model is not None and self.adapter.moves_first_inputs:
            network = self.template
            values = self._values(dict(model))
        vectors, tokens, names = first_vectors(network, self.vocabulary, positions, self.padding, values)
        return FirstInputs(vectors, tokens, self._adapters(names))

    def word_vectors(self, model: Model) -> Tensor:
        """``(V, d)`` vector of each token in a global model, as the network looks it up."""
        table = self.network.get_input_embeddings()  # type: ignore[operator]
        tokens = exchanged(torch.arange(self.vocabulary), self.padding)
        active = getattr(table, "modules_to_save", None)
        trained = table if active is None else active["default"]
        (name,) = [name for name, layer in self.network.named_modules() if layer is trained]
        values = self._values(dict(model))
        return values[f"{name}.weight"].detach()[tokens]

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
        arguments = network_arguments(self.task, examples, next(iter(parameters.values())), self.padding)
        values = self._values(dict(parameters))
        read = read_inputs(self.template, arguments, values=values, most=most, stop=layers)
        return [LayerInputs(vectors, self._adapters(names)) for vectors, names in read]

    def _adapters(self, layers: Sequence[str]) -> tuple[tuple[str, str], ...]:
        """Names of A and B of adapted layers."""
        public_names = {inner: public for public, inner in self.names.items()}
        adapters = []
        for layer in layers:
            a_name, b_name = matrix_names(layer)
            # A frozen A (FFA-LoRA) is not in the global model, so it keeps its name in the network.
            adapters.append((public_names.get(a_name, a_name), public_names[b_name]))
        return tuple(adapters)

    def places(self, inputs: Tensor) -> Tensor:
        """``(M, L)`` or, of images, ``(M, 1)`` bool: tokens that have a part in the loss of their record."""
        return tokens_in_loss(self.task, inputs)

    @property
    def reads_last(self) -> bool:
        """Whether a prediction is read from the last token: of a decoder, not of an encoder, which reads the first."""
        # Heads of decoders are called `score` in the transformers library.
        return self.task == "causal-lm" or any(".score." in name for name in self.names)

    def read_place(self, inputs: Tensor) -> Tensor:
        """``(N,)`` place of each text ``(N, L)`` that its prediction, or its last one, is read from."""
        if not self.reads_last:
            return torch.zeros(len(inputs), dtype=torch.int64)
        numbers = torch.arange(inputs.shape[1])
        return (self.places(inputs) * numbers).amax(1)

    def loss(self, parameters: Parameters, examples: Parameters, mask: Tensor) -> Tensor:
        draw_noise(self.template, examples[DRAWS] if self.random else None)
        losses, real = example_losses(self.task, self.outputs(parameters, examples), examples)
        real = real & mask.reshape(-1, *[1] * (real.dim() - 1))
        return (losses * real).sum() / real.sum().clamp(min=1)

    @functools.cached_property
    def independent(self) -> bool:
        return is_independent(self.network)

    def record_losses(self, parameters: Parameters, inputs: Tensor, labels: Tensor) -> Tensor:
        """Of a text, the mean over the tokens after the first."""
        draw_noise(self.template, None)
        examples = self._examples(inputs, labels)
        losses, real = example_losses(self.task, self.outputs(parameters, examples), examples)
        if losses.dim() == 1:
            return losses
        return (losses * real).sum(1) / real.sum(1).clamp(min=1)

    def gradient_work(self, inputs: Tensor) -> float:
        if self.task == "image-classification":
            return 0.0
        weights = sum(layer.weight.numel() for layer in self.network.modules() if isinstance(layer, nn.Linear))
        # A multiplication and an addition for each weight and token, and as many on the way back to the adapters.
        return 4.0 * weights * inputs.shape[1]

    def record_sizes(self, inputs: Tensor) -> Tensor:
        if self.task == "causal-lm":
            return (inputs[:, 1:] > 0).sum(1).float()
        return super().record_sizes(inputs)

    def _examples(self, inputs: Tensor, labels: Tensor) -> dict[str, Tensor]:
        if self.task == "image-classification":
            return {IMAGE: inputs, LABEL: labels}
        return {TOKENS: inputs, LABEL: labels}

    def encode(self, features: Tensor, labels: Tensor, examples: Tensor) -> tuple[Self, Cohort]:
        chosen = examples.clamp(min=0)
        fields = self._examples(features[chosen], labels[chosen])
        return self, Cohort(0, torch.arange(len(examples)), fields, examples >= 0)


def _without_values(value: Tensor) -> Tensor:
    """The tensor on the meta device, a parameter if it is one."""
    empty = value.detach().to("meta")
    if isinstance(value, nn.Parameter):
        return nn.Parameter(empty, requires_grad=value.requires_grad)
    return empty
