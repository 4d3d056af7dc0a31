"""Rank and layers of adapters, read from the names and shapes of their matrices, and the check of recorded ones."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from fedleak.core.errors import require

if TYPE_CHECKING:  # it imports torch, and reasons are read without
    from fedleak.client.adapters import AdapterOptions

MARK = ".lora_"
"""Part of the names of adapters' matrices."""
MAGNITUDE = ".lora_magnitude_vector"
"""Mark in the names of DoRA's magnitudes, one for each output of an adapted layer."""
NAME_OF_ADAPTER = re.compile(r"(?P<before>\.lora_[A-Za-z_]+|\.modules_to_save)\.(?P<adapter>(?!weight$|bias$)[^.]+)")
"""An adapter's own name, which peft puts behind the mark of its matrices: ``default`` unless the user names it."""
_OF_TABLES = ".lora_embedding_"
_UNSIMULATED = (".lora_B.bias", ".trainable_tokens_delta", ".trainable_tokens_delta.default")


@dataclass(frozen=True)
class AdapterShape:
    """Rank of a network's adapters, and the layers that have one.

    Attributes:
        ranks: rows of each A, columns of each B.
        layers: names of the adapted layers.
        matrices: ``lora_A`` and ``lora_B``, or the one of them that clients train.

    Example:
        >>> str(AdapterShape.of({"attention.q_proj.lora_A.weight": (4, 64), "attention.q_proj.lora_B.weight": (64, 4)}))
        'rank 4 at 1 layers (q_proj)'
    """

    ranks: frozenset[int]
    layers: frozenset[str]
    matrices: frozenset[str]

    @classmethod
    def of(cls, shapes: Mapping[str, tuple[int, ...]]) -> Self:
        """That of parameters by name, those of other layers among them."""
        ranks = set()
        layers = set()
        matrices = set()
        for name, shape in shapes.items():
            if MARK not in name or MAGNITUDE in name:
                continue
            layer, _, end = name.partition(MARK)
            layers.add(layer)
            matrices.add(f"lora_{end[:1]}")
            # A is (rank, inputs), B is (outputs, rank).
            ranks.add(shape[0] if end.startswith("A") else shape[-1])
        return cls(frozenset(ranks), frozenset(layers), frozenset(matrices))

    @property
    def blocks(self) -> set[int]:
        """Numbers of the blocks of the layers, as their names have them."""
        return {int(part) for layer in self.layers for part in layer.split(".") if part.isdigit()}

    @property
    def ends(self) -> str:
        """Last parts of the names of the layers."""
        return ", ".join(sorted({layer.rpartition(".")[2] for layer in self.layers}))

    def __str__(self) -> str:
        return f"rank {' and '.join(map(str, sorted(self.ranks)))} at {len(self.layers)} layers ({self.ends})"


def check_adapters(
    expected: Mapping[str, tuple[int, ...]], recorded: Mapping[str, tuple[int, ...]], options: "AdapterOptions"
) -> None:
    """Checks that recorded parameters are adapters of the same rank at the same layers as those of an algorithm.

    Args:
        expected: shapes of the algorithm's parameters, by their names in peft's state dict.
        recorded: shapes of the recorded ones, by the same names.
        options: the algorithm's adapters.

    Raises:
        InputError: they are others, those of another kind, or with other layers beside them; they lack A, or they are
            no adapters.
    """
    expected_shape = AdapterShape.of(expected)
    recorded_shape = AdapterShape.of(recorded)
    require(
        recorded_shape.layers,
        "matrices lora_A and lora_B of adapters",
        f"{len(recorded)} parameters without any, e.g. {next(iter(recorded), 'none')}:"
        " a whole network, merged adapters, or adapters of another kind than LoRA",
        "Record get_peft_model_state_dict(model) before adapters are merged into the network. If clients train all of"
        " it, give --learner.adapter.variant none.",
    )
    of_tables = [name for name in recorded if _OF_TABLES in name]
    require(
        not of_tables,
        "adapters of linear layers",
        f"{len(of_tables)} matrices of an adapter of the table of words, e.g. {next(iter(of_tables), 'none')}",
        "Such adapters are not simulated. In the first round, in which this adapter adds nothing yet, record the names"
        " without lora_embedding_: words are read from the others.",
    )
    unsimulated = [name for name in recorded if name.endswith(_UNSIMULATED)]
    require(
        not unsimulated,
        "adapters without biases of their own and without single trained words",
        f"{len(unsimulated)} parameters of lora_bias or trainable_token_indices of peft, e.g. {unsimulated[:1]}",
        "These are not simulated. Record the names without them: of one local step words are read from the adapters"
        " as if nothing else moved; sentences are not, once they have moved.",
    )
    require(
        len(recorded_shape.ranks) == 1,
        "adapters of one rank",
        f"{recorded_shape} (rank_pattern of peft)",
        "Adapters of several ranks are not simulated. Record those of one rank alone, and give their"
        " --learner.adapter.rank and --learner.adapter.targets: words are read from them; sentences are not predicted.",
    )
    magnitudes = [name for name in recorded if MAGNITUDE in name]
    if options.variant == "dora":
        magnitudes_fit = bool(magnitudes)
        kind = "magnitudes (lora_magnitude_vector) next to the adapters, as of DoRA"
        found_kind = "none"
        option = "lora, if clients train without them; else record them too"
    else:
        magnitudes_fit = not magnitudes
        kind = f"adapters without magnitudes, as of adapter.variant {options.variant}"
        found_kind = f"those of DoRA, with {len(magnitudes)} magnitudes, e.g. {next(iter(magnitudes), 'none')}"
        option = "dora"
    require(magnitudes_fit, kind, found_kind, f"Give --learner.adapter.variant {option}.")
    _check_others(expected, recorded)
    require(
        expected_shape.matrices == recorded_shape.matrices,
        f"{' and '.join(sorted(expected_shape.matrices))} of each adapter",
        f"only {' and '.join(sorted(recorded_shape.matrices))}" if len(recorded_shape.matrices) == 1 else "both",
        "Record both matrices of each adapter, also one that is frozen, and give --learner.adapter.variant lora.",
    )
    layers = ""
    if recorded_shape.blocks and recorded_shape.blocks != expected_shape.blocks:
        numbers = ", ".join(map(str, sorted(recorded_shape.blocks)))
        layers = f", and --learner.adapter.layers [{numbers}] if peft's layers_to_transform has chosen them"
    endings = _endings(recorded_shape.layers, expected_shape.layers - recorded_shape.layers)
    require(
        expected_shape == recorded_shape,
        f"adapters of {expected_shape}, as given by the options",
        f"{recorded_shape} in the recording",
        f"Give --learner.adapter.rank and --learner.adapter.targets of the recorded ones, e.g. [{', '.join(endings)}]"
        f"{layers}.",
    )


def check_one_adapter(names: Iterable[str]) -> None:
    """Checks that recorded names, as the network spells them, are of one adapter.

    Raises:
        InputError: they are of several.
    """
    adapters = adapter_names(names)
    require(
        len(adapters) <= 1,
        "the adapter that clients train",
        f"{len(adapters)} adapters of one network: {', '.join(adapters)}",
        "Record that one alone: get_peft_model_state_dict(model, adapter_name=NAME). If several are active at once,"
        " their sum is no adapter of the rank of one: words are still read, and sentences are not predicted.",
    )


def _check_others(expected: Mapping[str, tuple[int, ...]], recorded: Mapping[str, tuple[int, ...]]) -> None:
    """Checks that what is recorded next to adapters is what the options name, and the other way round.

    Raises:
        InputError: with the options that name it.
    """
    beside = [name for name in recorded if MARK not in name and name not in expected]
    biases = [name for name in beside if name.endswith("bias")]
    tables = [name for name in beside if name not in biases]
    ways = []
    if tables:
        ends = sorted({name.rpartition(".")[0].rpartition(".")[2] for name in tables})
        ways.append(f"--learner.adapter.whole [{', '.join(ends)}] if they are trained whole (modules_to_save of peft)")
    if biases:
        kind = "all"
        if all(name.endswith(".base_layer.bias") for name in biases):
            kind = "lora_only"
        ways.append(f"--learner.adapter.bias {kind} if biases are trained")
    require(
        not beside,
        "adapters alone, as given by the options",
        f"{len(beside)} other parameters next to them, e.g. {next(iter(beside), 'none')}",
        f"Give {' and '.join(ways)}. If clients train the whole network, give --learner.adapter.variant none.",
    )
    missing = [name for name in expected if MARK not in name and name not in recorded]
    require(
        not missing,
        f"{len(missing)} parameters next to the adapters, as given by the options, e.g. {next(iter(missing), 'none')}",
        f"none of that name among {len(recorded)}",
        "Record what clients train, or give no --learner.adapter.whole and --learner.adapter.bias: then of one local"
        " step the adapters are attacked as if nothing else moved.",
    )


def _endings(layers: frozenset[str], other_layers: frozenset[str]) -> list[str]:
    """Shortest ends of the names of layers, in whole parts, that no other layer has."""
    endings = set()
    for layer in layers:
        parts = layer.split(".")
        ending = layer  # the whole name, if no shorter end is of this layer alone
        for start in range(len(parts) - 1, -1, -1):
            end = ".".join(parts[start:])
            if not any(other.endswith(f".{end}") for other in other_layers):
                ending = end
                break
        endings.add(ending)
    return sorted(endings)


def adapter_names(names: Iterable[str]) -> list[str]:
    """Own names of the adapters in the names of parameters; of peft's state dict, none.

    >>> adapter_names(["q_proj.lora_A.default.weight", "q_proj.lora_A.second.weight", "q_proj.lora_A.weight"])
    ['default', 'second']
    """
    adapters = set()
    for name in names:
        match = NAME_OF_ADAPTER.search(name)
        if match is not None:
            adapters.add(match["adapter"])
    return sorted(adapters)
