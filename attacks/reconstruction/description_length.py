"""Description lengths of records under a prior that is learned from the other clients' records."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fedleak.core.record_hash import grid_of
from fedleak_recorder.record_hash import levels

_MOST_SYMBOLS = 2**22
"""Largest number of frequencies that are counted: of all values of all contexts."""


@dataclass(frozen=True)
class _Symbols:
    """Symbols ``(K,)`` of a client's records, with the context of each, and the number of its record."""

    symbols: Tensor
    contexts: Tensor
    records: Tensor


def description_bits(records: Sequence[Tensor], truth: Mapping[str, Tensor]) -> list[Tensor] | None:
    """``(N_v,)`` bits of each client's records ``(N_v, *shape)``, ``-log2 p(record)`` by the other clients' records.

    A record is a sequence of independent symbols. Of a text, they are its words and one end; of an image ``(channels,
    height, width)``, each pixel's difference to the one on its left, in the first column to the one above, with
    frequencies for each channel; of any other record, its numbers, with frequencies for each place. A symbol that
    occurs n times among the N of the other clients, where S values are possible, has the probability
    ``(n + 1) / (N + S)`` (Laplace's rule of succession).

    Args:
        records: of each client, on the grid of its ground truth.
        truth: ground truth of these clients, of which the grid is read.

    Returns:
        None if fewer than two clients have records, or too many values are possible to count them.
    """
    if sum(len(client_records) > 0 for client_records in records) < 2:
        return None
    clients = [_symbols(client_records, truth, v) for v, client_records in enumerate(records)]
    symbols = torch.cat([client.symbols for client in clients])
    contexts = torch.cat([client.contexts for client in clients])
    # Possible values of each context: all from the smallest to the largest that occurs in it.
    bounds = torch.iinfo(torch.int64)
    size = int(contexts.max()) + 1
    smallest = torch.full((size,), bounds.max).scatter_reduce(0, contexts, symbols, "amin")
    largest = torch.full((size,), bounds.min).scatter_reduce(0, contexts, symbols, "amax")
    value_counts = (largest - smallest + 1).clamp(min=0)
    if int(value_counts.clamp(max=_MOST_SYMBOLS + 1).sum()) > _MOST_SYMBOLS:
        return None
    # Each pair of a context and a value gets a number, so that one histogram counts all of them.
    start = value_counts.cumsum(0) - value_counts - smallest
    pair_counts = torch.bincount(start[contexts] + symbols)
    context_counts = torch.bincount(contexts)
    bits = []
    for client_records, client in zip(records, clients, strict=True):
        pairs = start[client.contexts] + client.symbols
        # Counts among the other clients: those of all, less the client's own.
        occurrences = pair_counts[pairs] - _repetitions(pairs)
        total = context_counts[client.contexts] - _repetitions(client.contexts)
        possible = value_counts[client.contexts]
        # -log2 (n + 1) / (N + S)
        lengths = (total + possible).double().log2() - (occurrences + 1).double().log2()
        of_records = torch.zeros(len(client_records), dtype=torch.float64)
        bits.append(of_records.index_add_(0, client.records, lengths))
    return bits


def _repetitions(values: Tensor) -> Tensor:
    """``(K,)`` how often each of ``values (K,)`` occurs among them."""
    _, number, counts = torch.unique(values, return_inverse=True, return_counts=True)
    repetitions: Tensor = counts[number]
    return repetitions


def _symbols(records: Tensor, truth: Mapping[str, Tensor], client: int) -> _Symbols:
    """Symbols of a client's records."""
    if not records.is_floating_point():
        # Words up to the last one, where padding begins, and one 0 more, which is the end.
        words_from_here = records.flip(1).cumsum(1).flip(1)
        lengths = (words_from_here > 0).long().sum(1)
        is_symbol = torch.arange(records.shape[1] + 1) <= lengths[:, None]
        padded = torch.nn.functional.pad(records, (0, 1))
        record = is_symbol.nonzero()[:, 0]
        return _Symbols(padded[is_symbol].long(), torch.zeros_like(record), record)
    grid = grid_of(truth, client)
    step_and_origin = None if grid is None else (grid[0].numpy(), grid[1].numpy())
    numbers = torch.from_numpy(levels(records.numpy(), step_and_origin)).round().long()
    if numbers.dim() == 4:
        # Neighbouring pixels are alike, so that differences have short descriptions.
        neighbour = torch.zeros_like(numbers)
        neighbour[..., 1:] = numbers[..., :-1]
        neighbour[:, :, 1:, 0] = numbers[:, :, :-1, 0]
        numbers = numbers - neighbour
        channels = torch.arange(numbers.shape[1])
        context = channels[:, None, None].expand(numbers.shape[1:]).flatten()
    else:
        context = torch.arange(numbers[0].numel() if len(numbers) else 0)
    numbers = numbers.flatten(1)
    record = torch.arange(len(numbers)).repeat_interleave(numbers.shape[1])
    return _Symbols(numbers.flatten(), context.repeat(len(numbers)), record)
