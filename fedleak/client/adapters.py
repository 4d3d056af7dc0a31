"""Adapters of low rank in a network of the transformers library: their options, matrices and names.

References:
    [Hu22]; [Sun24] (FFA-LoRA); [Kalajdzievski23] (rsLoRA).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from torch import nn

from fedleak.core.errors import InputError
from fedleak.core.ranges import PositiveFloat, PositiveInt, UnitInterval

Variant = Literal["lora", "ffa", "rslora", "none"]
"""Adapter: LoRA; with A frozen (FFA-LoRA); with the scale of rsLoRA; or none, where all parameters are trained."""
_EVERY_LAYER = "all-linear"


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

    def trains(self, name: str) -> bool:
        """Whether clients train the parameter of this name in the network."""
        if self.variant == "none" or ".lora_B." in name or ".modules_to_save." in name:
            return True
        return ".lora_A." in name and self.variant != "ffa"

    def most_added(self, network: nn.Module) -> int:
        """Largest number of parameters that adapters add to a network.

        Those are A ``(rank, inputs)`` and B ``(outputs, rank)``, at most of all layers with a table of weights.
        """
        if self.variant == "none":
            return 0
        sides = [sum(value.shape) for value in network.parameters() if value.dim() == 2]
        return self.rank * sum(sides)


def add_adapters(network: nn.Module, options: AdapterOptions, *, heads: Sequence[str] | None) -> nn.Module:
    """A network with adapters, whose matrices A are drawn from the global generator.

    Args:
        network: the network; changed in place.
        options: its adapters.
        heads: names of the layers that are trained whole, or None.

    Raises:
        InputError: no layer has a name of `AdapterOptions.targets`.
    """
    return _with_targets(network, options, heads, list(options.targets) or None)


def _with_targets(
    network: nn.Module, options: AdapterOptions, heads: Sequence[str] | None, targets: list[str] | None
) -> nn.Module:
    from peft import LoraConfig, get_peft_model  # slow to import

    trained_whole = None if heads is None else list(heads)
    configuration = LoraConfig(
        r=options.rank,
        lora_alpha=options.alpha or 2 * options.rank,  # type: ignore[arg-type]
        target_modules="all-linear" if targets == [_EVERY_LAYER] else targets,
        lora_dropout=options.dropout,
        use_rslora=options.variant == "rslora",
        modules_to_save=trained_whole,
        exclude_modules=trained_whole,
    )
    try:
        adapted: nn.Module = get_peft_model(network, configuration)
    except ValueError as error:
        if targets is None:  # peft knows no default for this kind of network
            return _with_targets(network, options, heads, [_EVERY_LAYER])
        linear = [name for name, layer in network.named_modules() if isinstance(layer, nn.Linear)]
        raise InputError(
            expected=f"adapter.targets among the layers of the network, e.g. {', '.join(linear[:3])}",
            found=f"{', '.join(targets)} ({str(error).partition('.')[0]})",
            way_out=f"Name ends of their names, e.g. q_proj, or {_EVERY_LAYER}.",
        ) from None
    return adapted


def state_dict_name(name: str) -> str:
    """A parameter's name in peft's state dict, of that in the network."""
    return name.replace(".modules_to_save.default.", ".").replace(".default.", ".")


def matrix_names(layer: str) -> tuple[str, str]:
    """Names in the network of A and B of an adapted layer."""
    return f"{layer}.lora_A.default.weight", f"{layer}.lora_B.default.weight"
