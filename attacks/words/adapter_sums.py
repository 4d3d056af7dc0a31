"""Sums of known vectors of words in the update of the first adapters of a network."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from fedleak.attacks.linear_algebra import triangle
from fedleak.attacks.reconstruction.span import number_variances
from fedleak.attacks.words.joint_pursuit import VectorSums
from fedleak.client.pretrained import PretrainedAlgorithm
from fedleak.client.word_vectors import StoredVectors, word_vectors
from fedleak.core.errors import ViewError
from fedleak.core.view import RoundView

SAFETY = 4.0
"""Error of a sum of rounded numbers, over that of independent roundings."""


@dataclass(frozen=True)
class AdapterSums:
    """Sums of vectors of words in the clients' updates.

    Attributes:
        sums: of each client, systems with the same candidates.
        tokens: ``(K,)`` word of each candidate.
        vocabulary: number of words.
        names: parameters from whose change the sums are.
    """

    sums: list[list[VectorSums]]
    tokens: Tensor
    vocabulary: int
    names: tuple[str, ...]


def adapter_sums(view: RoundView, text_length: int) -> AdapterSums:
    """Rows of the change of A of the first adapted layers; of B, where A did not move; computed once for a view.

    Raises:
        ViewError: the first adapters were not recorded, did not move, or read no vectors of single words.
    """
    return view.shared.value(("sums of adapters", text_length), lambda: _adapter_sums(view, text_length))


def _adapter_sums(view: RoundView, text_length: int) -> AdapterSums:
    algorithm = view.require(PretrainedAlgorithm)
    first = algorithm.first_inputs(text_length, view.model)
    missing = [b_name for _, b_name in first.adapters if b_name not in view.deltas]
    if missing:
        raise ViewError(f"expected the deltas of the first adapters, {', '.join(missing)}; record them")
    variances = number_variances(view)
    # A may be frozen (FFA-LoRA): then its values are those of the learner, not of the recorded model.
    values = {**algorithm.frozen, **view.model}
    trained_a = [a_name for a_name, _ in first.adapters if a_name in view.deltas]
    vectors = word_vectors(first.vectors)
    # The vectors A z of each layer, the same for all clients; made if they are needed.
    products = dict[str, StoredVectors]()
    names = tuple(dict.fromkeys([*trained_a, *(b_name for _, b_name in first.adapters)]))
    changes = changes_by_gradients(view, names)
    sums_of_clients = []
    for victim in range(view.victims):
        a_changes = [changes[a_name][victim].double() for a_name in trained_a]
        if a_changes and bool(torch.cat(a_changes).any()):
            # Rows of the change of A are sums of the words' vectors: all layers read the same inputs, so they make one
            # system, whose errors are independent.
            errors = [change_error(view, a_name, victim) for a_name in trained_a]
            error = float(torch.tensor(errors).norm())
            least_error = math.sqrt(sum(float(variances[a_name][victim].sum()) for a_name in trained_a))
            sums_of_clients.append([VectorSums(torch.cat(a_changes), vectors, error, min(error, least_error))])
            continue
        # A did not move, so rows of the change of B are sums of the vectors A z: a system of its own for each layer.
        layer_sums = []
        for a_name, _ in first.adapters:
            if a_name not in products:
                products[a_name] = vectors.times(values[a_name])
        for a_name, b_name in first.adapters:
            change = changes[b_name][victim].double()
            layer_sums.append(VectorSums(triangle(change), products[a_name], change_error(view, b_name, victim)))
        sums_of_clients.append(layer_sums)
    return AdapterSums(sums_of_clients, first.tokens, algorithm.vocabulary, names)


def changes_by_gradients(view: RoundView, names: Iterable[str]) -> dict[str, Tensor]:
    """``(V, *shape)`` changes of parameters, without those by declared weight decay of SGD, which are known.

    Weight decay shrinks a parameter by a part of itself, which is no sum of vectors. What then is rounding alone is 0.
    """
    algorithm = view.require(PretrainedAlgorithm)
    changes = {name: view.deltas[name] for name in names}
    if not algorithm.local.weight_decay:
        return changes
    decay = algorithm.decay_change({name: view.model[name] for name in changes}, view.example_counts)
    without_decay = {}
    for name, change in changes.items():
        gradients = change - decay[name]
        for victim in range(view.victims):
            if float(gradients[victim].norm()) <= change_error(view, name, victim):
                gradients[victim] = 0
        without_decay[name] = gradients
    return without_decay


def change_error(view: RoundView, name: str, victim: int) -> float:
    """Frobenius norm of the error of a parameter's change: of its rounding, and of declared noise."""
    delta = view.deltas[name][victim].double()
    stored_type = torch.bfloat16 if name in view.rounded else torch.float32
    # A difference of two float32 models has the rounding of the models; then the difference itself is rounded.
    rounding = torch.finfo(torch.float32).eps * float(view.model[name].double().norm())
    rounding += torch.finfo(stored_type).eps * float(delta.norm())
    return SAFETY * rounding + view.noise_scale(name) * math.sqrt(delta.numel())
