"""Adapters of low rank in a network of the transformers library: their options, matrices and names.

References:
    [Hu22]; [Sun24] (FFA-LoRA); [Kalajdzievski23] (rsLoRA); [Liu24] (DoRA).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from torch import nn

from fedleak.client.adapter_shape import MAGNITUDE, NAME_OF_ADAPTER
from fedleak.core.errors import InputError, require
from fedleak.core.ranges import NonNegativeInt, PositiveFloat, PositiveInt, UnitInterval

Variant = Literal["lora", "ffa", "rslora", "dora", "none"]
"""Adapter: LoRA; with A frozen (FFA-LoRA); with the scale of rsLoRA; with the magnitudes of DoRA; or none, where all
parameters are trained."""
Biases = Literal["none", "lora_only", "all"]
"""Biases of the network that are trained next to adapters: none, those of the adapted layers, or all."""
_EVERY_LAYER = "all-linear"
_TRAINED_WHOLE = ".modules_to_save."
_FROZEN_COPY = ".original_module."


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
        layers: numbers of the blocks whose layers are adapted, as ``layers_to_transform`` of peft; empty for all.
        whole: ends of the names of layers that are trained whole next to the adapters, as ``modules_to_save`` of peft,
            e.g. ``lm_head``.
        bias: biases of the network that are trained too.

    Example:
        >>> options = AdapterOptions(variant="dora", whole=("lm_head",))
        >>> options.trains("model.lm_head.modules_to_save.default.weight")
        True
        >>> options.trains("model.lm_head.original_module.weight")
        False
    """

    variant: Variant = "lora"
    rank: PositiveInt = 8
    alpha: PositiveFloat | None = None
    targets: tuple[str, ...] = ()
    dropout: UnitInterval = 0.0
    layers: tuple[NonNegativeInt, ...] = ()
    whole: tuple[str, ...] = ()
    bias: Biases = "none"

    def __post_init__(self) -> None:
        """Checks that what is added to adapters has adapters."""
        extras = [name for name in ("layers", "whole") if getattr(self, name)]
        if self.bias != "none":
            extras.append("bias")
        require(
            self.variant != "none" or not extras,
            "adapter.variant none alone, which trains the whole network",
            f"it with adapter.{' and adapter.'.join(extras)}",
            "Leave these out, or take adapters, e.g. adapter.variant lora.",
        )

    @property
    def moves_first_inputs(self) -> bool:
        """Whether more than adapters is trained, so that what the first adapted layers read may move."""
        return bool(self.whole) or self.bias == "all"

    def trains(self, name: str) -> bool:
        """Whether clients train the parameter of this name in the network."""
        if self.variant == "none" or ".lora_B." in name or MAGNITUDE in name or _TRAINED_WHOLE in name:
            return True
        if ".lora_A." in name:
            return self.variant != "ffa"
        if self.bias == "lora_only":
            return name.endswith(".base_layer.bias")
        return self.bias == "all" and "bias" in name and _FROZEN_COPY not in name

    def most_added(self, network: nn.Module) -> int:
        """Largest number of parameters that adapters add to a network.

        Those are A ``(rank, inputs)`` and B ``(outputs, rank)``, at most of all layers with a table of weights, the
        magnitudes ``(outputs,)`` of DoRA, and a copy of each layer that is trained whole.
        """
        if self.variant == "none":
            return 0
        sides = [sum(value.shape) for value in network.parameters() if value.dim() == 2]
        numbers_per_side = self.rank
        if self.variant == "dora":
            numbers_per_side += 1
        added = numbers_per_side * sum(sides)
        for name, layer in network.named_modules():
            if name.endswith(self.whole):
                added += sum(value.numel() for value in layer.parameters())
        return added


def add_adapters(network: nn.Module, options: AdapterOptions, *, heads: Sequence[str] | None) -> nn.Module:
    """A network with adapters, whose matrices A are drawn from the global generator.

    Args:
        network: the network; changed in place.
        options: its adapters.
        heads: names of the layers that are trained whole, or None.

    Raises:
        InputError: no layer has a name of `AdapterOptions.targets`, or of `AdapterOptions.whole`.
    """
    names = [name for name, _ in network.named_modules()]
    for whole in options.whole:
        require(
            any(name == whole or name.endswith(f".{whole}") for name in names),
            f"adapter.whole among the layers of the network, e.g. {', '.join(_last_layers(network))}",
            whole,
            "Name ends of their names, as peft's modules_to_save does.",
        )
    trained_whole = [*(heads or ()), *options.whole]
    return _with_targets(network, options, trained_whole or None, list(options.targets) or None)


def _last_layers(network: nn.Module) -> list[str]:
    """Names of the last two layers with parameters of their own."""
    names = [name for name, layer in network.named_modules() if any(True for _ in layer.parameters(recurse=False))]
    return names[-2:]


def _with_targets(
    network: nn.Module, options: AdapterOptions, trained_whole: list[str] | None, targets: list[str] | None
) -> nn.Module:
    from peft import LoraConfig, get_peft_model  # slow to import

    configuration = LoraConfig(
        r=options.rank,
        lora_alpha=options.alpha or 2 * options.rank,  # type: ignore[arg-type]
        target_modules="all-linear" if targets == [_EVERY_LAYER] else targets,
        lora_dropout=options.dropout,
        use_rslora=options.variant == "rslora",
        use_dora=options.variant == "dora",
        layers_to_transform=list(options.layers) or None,
        bias=options.bias,
        modules_to_save=trained_whole,
        exclude_modules=trained_whole,
    )
    try:
        adapted: nn.Module = get_peft_model(network, configuration)
    except ValueError as error:
        if targets is None:  # peft knows no default for this kind of network
            return _with_targets(network, options, trained_whole, [_EVERY_LAYER])
        in_layers = ""
        if options.layers:
            in_layers = f" in the layers {', '.join(map(str, options.layers))}"
        linear = [name for name, layer in network.named_modules() if isinstance(layer, nn.Linear)]
        raise InputError(
            expected=f"adapter.targets among the layers of the network, e.g. {', '.join(linear[:3])}",
            found=f"{', '.join(targets)}{in_layers} ({str(error).partition('.')[0]})",
            way_out=f"Name ends of their names, e.g. q_proj, or {_EVERY_LAYER}.",
        ) from None
    return adapted


def state_dict_name(name: str) -> str:
    """A parameter's name in peft's state dict, of that in the network, whatever the adapter's own name is.

    >>> state_dict_name("model.q_proj.lora_A.default.weight")
    'model.q_proj.lora_A.weight'
    >>> state_dict_name("model.q_proj.lora_magnitude_vector.mine.weight")
    'model.q_proj.lora_magnitude_vector'
    >>> state_dict_name("model.lm_head.modules_to_save.default.weight")
    'model.lm_head.weight'
    """
    plain = NAME_OF_ADAPTER.sub(r"\g<before>", name).replace(".modules_to_save.", ".")
    if MAGNITUDE in plain:
        return plain.removesuffix(".weight")
    return plain


def matrix_names(layer: str) -> tuple[str, str]:
    """Names in the network of A and B of an adapted layer."""
    return f"{layer}.lora_A.default.weight", f"{layer}.lora_B.default.weight"
