"""Description lengths of records under a prior that is learned from the other clients' records."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from fedleak.core.record_hash import grid_of
from fedleak_recorder.record_hash import levels

_MOST_SYMBOLS = 2**22
"""Largest number of frequencies that are counted: of all values of all contexts."""


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
    if sum(len(own) > 0 for own in records) < 2:
        return None
    parts = [_symbols(own, truth, v) for v, own in enumerate(records)]
    symbols, contexts, _ = (torch.cat(own) for own in zip(*parts, strict=True))
    size = int(contexts.max()) + 1
    least = torch.full((size,), torch.iinfo(torch.int64).max).scatter_reduce(0, contexts, symbols, "amin")
    most = torch.full((size,), torch.iinfo(torch.int64).min).scatter_reduce(0, contexts, symbols, "amax")
    values = (most - least + 1).clamp(min=0)
    if int(values.clamp(max=_MOST_SYMBOLS + 1).sum()) > _MOST_SYMBOLS:
        return None
    start = values.cumsum(0) - values - least
    place = start[contexts] + symbols
    found = []
    sizes = [len(of) for _, _, of in parts]
    occurring, total = _split(torch.bincount(place)[place], sizes), _split(torch.bincount(contexts)[contexts], sizes)
    possible = _split(values[contexts], sizes)
    for v, (own, (_, context, of)) in enumerate(zip(_split(place, sizes), parts, strict=True)):
        n, others = occurring[v] - _repetitions(own), total[v] - _repetitions(context)
        lengths = (others + possible[v]).double().log2() - (n + 1).double().log2()
        found.append(torch.zeros(len(records[v]), dtype=torch.float64).index_add_(0, of, lengths))
    return found


def _repetitions(values: Tensor) -> Tensor:
    """``(K,)`` how often each of ``values (K,)`` occurs among them."""
    _, place, counts = torch.unique(values, return_inverse=True, return_counts=True)
    repetitions: Tensor = counts[place]
    return repetitions


def _symbols(records: Tensor, truth: Mapping[str, Tensor], client: int) -> tuple[Tensor, Tensor, Tensor]:
    """Symbols ``(K,)`` of a client's records, the context of each, and the record of each."""
    if not records.is_floating_point():
        kept = (records.flip(1).cumsum(1).flip(1) > 0).long().sum(1)  # words up to the last one
        held = torch.arange(records.shape[1] + 1) <= kept[:, None]
        padded = torch.nn.functional.pad(records, (0, 1))
        of = held.nonzero()[:, 0]
        return padded[held].long(), torch.zeros_like(of), of
    grid = grid_of(truth, client)
    own = None if grid is None else (grid[0].numpy(), grid[1].numpy())
    whole = torch.from_numpy(levels(records.numpy(), own)).round().long()
    if whole.dim() == 4:
        before = torch.zeros_like(whole)
        before[..., 1:] = whole[..., :-1]
        before[:, :, 1:, 0] = whole[:, :, :-1, 0]
        whole = whole - before
        context = torch.arange(whole.shape[1])[:, None, None].expand(whole.shape[1:]).flatten()
    else:
        context = torch.arange(whole[0].numel() if len(whole) else 0)
    whole = whole.flatten(1)
    of = torch.arange(len(whole)).repeat_interleave(whole.shape[1])
    return whole.flatten(), context.repeat(len(whole)), of


def _split(values: Tensor, sizes: list[int]) -> Sequence[Tensor]:
    parts: Sequence[Tensor] = torch.split(values, sizes)
    return parts
