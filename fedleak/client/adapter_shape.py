"""Rank and layers of adapters, read from the names and shapes of their matrices, and the check of recorded ones."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from fedleak.core.errors import require

_MARK = ".lora_"
_MAGNITUDE = ".lora_magnitude_vector"


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
            if _MARK not in name:
                continue
            layer, _, end = name.partition(_MARK)
            layers.add(layer)
            matrices.add(f"lora_{end[:1]}")
            # A is (rank, inputs), B is (outputs, rank).
            ranks.add(shape[0] if end.startswith("A") else shape[-1])
        return cls(frozenset(ranks), frozenset(layers), frozenset(matrices))

    @property
    def ends(self) -> str:
        """Last parts of the names of the layers."""
        return ", ".join(sorted({layer.rpartition(".")[2] for layer in self.layers}))

    def __str__(self) -> str:
        return f"rank {' and '.join(map(str, sorted(self.ranks)))} at {len(self.layers)} layers ({self.ends})"


def check_adapters(expected: Mapping[str, tuple[int, ...]], recorded: Mapping[str, tuple[int, ...]]) -> None:
    """Checks that recorded parameters are adapters of the same rank at the same layers as those of an algorithm.

    Raises:
        InputError: they are others, those of DoRA, or next to other parameters; they lack A, or they are no adapters.
    """
    expected_shape = AdapterShape.of(expected)
    recorded_shape = AdapterShape.of(recorded)
    require(
        recorded_shape.layers,
        "matrices lora_A and lora_B of adapters",
        f"{len(recorded)} parameters without any, e.g. {next(iter(recorded), 'none')}:"
        " a whole network, or merged adapters",
        "Record get_peft_model_state_dict(model) before adapters are merged into the network. If clients train all of"
        " it, give --learner.adapter.variant none.",
    )
    magnitudes = [name for name in recorded if _MAGNITUDE in name]
    require(
        not magnitudes,
        "adapters of LoRA, rsLoRA or FFA-LoRA",
        f"those of DoRA, with {len(magnitudes)} magnitudes, e.g. {next(iter(magnitudes), 'none')}",
        "DoRA is not simulated. Leave its magnitudes out of the recording and give --learner.adapter.variant lora:"
        " words are read from A as of LoRA, and sentences are not.",
    )
    unadapted = [name for name in recorded if _MARK not in name and name not in expected]
    require(
        not unadapted,
        "adapters alone",
        f"{len(unadapted)} other parameters next to them, e.g. {next(iter(unadapted), 'none')}:"
        " layers that are trained whole (modules_to_save of peft) or biases",
        "Leave them out of the recording, with the names that hold lora_ alone: of one local step the adapters are"
        " attacked as if nothing else moved. If clients train the whole network, give --learner.adapter.variant none.",
    )
    require(
        expected_shape.matrices == recorded_shape.matrices,
        f"{' and '.join(sorted(expected_shape.matrices))} of each adapter",
        f"only {' and '.join(sorted(recorded_shape.matrices))}" if len(recorded_shape.matrices) == 1 else "both",
        "Record both matrices of each adapter, also one that is frozen, and give --learner.adapter.variant lora.",
    )
    require(
        expected_shape == recorded_shape,
        f"adapters of {expected_shape}, as given by the options",
        f"{recorded_shape} in the recording",
        "Give --learner.adapter.rank and --learner.adapter.targets of the recorded ones, e.g."
        f" [{', '.join(_endings(recorded_shape.layers, expected_shape.layers - recorded_shape.layers))}].",
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
