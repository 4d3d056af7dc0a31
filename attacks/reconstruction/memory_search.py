"""Search for the texts whose states are rows of an adapter's change."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import normalize

from fedleak.attacks.reconstruction.adapter_memory import Memory

_PARALLEL = 0.999
"""Cosine above which two rows are taken to be of the same text."""


_SWEEPS = 8
"""Passes of coordinate descent over the places of a text."""


_STARTS = 0.93
"""Cosine of a row with the nearest sum of words, of a text in any order, below which its text is not searched."""


_TRIED = 24
"""Other words that are tried in a step of the search for a text."""


_STEPS = 40
"""Largest number of steps to a neighbouring text."""


@dataclass(frozen=True)
class RowSearch:
    """Search for the texts of the rows of one update.

    Attributes:
        memory: the adapter.
        change: ``(N, R)`` change of B.
        signs: whether only the signs of a change are meaningful.
        cosine: least cosine of a text's state and its row.
    """

    memory: Memory
    change: Tensor
    signs: bool
    cosine: float

    def texts(self, most: int) -> tuple[Tensor, list[Tensor]]:
        """Different texts ``(M, T + 1)``, those of the best cosine first, and the units of each."""
        rows = self.change.sign() if self.signs else self.change
        # A state that excites unit u has B_u A z > 0, which gives the row's sign.
        excited = (self.change * self.memory.model[self.memory.up].float()).sum(1)
        rows = rows * torch.where(excited < 0, -1.0, 1.0)[:, None]
        groups = self.groups(normalize(rows))
        targets = torch.stack([normalize(rows[units]).mean(0) for units in groups])
        start, nearness = self.nearest_sums(targets)
        # Rows of several texts are hardly ever parallel, so groups of several rows come first.
        has_several = torch.tensor([len(units) > 1 for units in groups])
        chosen = (nearness + has_several).argsort(descending=True)[:most]
        chosen = chosen[nearness[chosen] >= _STARTS]
        # Searches from several groups may end at one text: it has the units of all, and the best fit.
        fit_of = dict[tuple[int, ...], float]()
        units_of = dict[tuple[int, ...], Tensor]()
        for number in chosen.tolist():
            text, fit = self.searched(start[number], targets[number])
            words = tuple(text.tolist())
            if fit < self.cosine:
                continue
            if words in fit_of:
                fit_of[words] = max(fit, fit_of[words])
                units_of[words] = torch.cat([units_of[words], groups[number]])
            else:
                fit_of[words] = fit
                units_of[words] = groups[number]
        ordered = sorted(fit_of, key=lambda words: -fit_of[words])
        texts = torch.tensor(ordered, dtype=torch.int64).reshape(-1, self.memory.position + 1)
        return texts, [units_of[words] for words in ordered]

    def groups(self, rows: Tensor) -> list[Tensor]:
        """Numbers of rows of length 1 that are parallel, the longest changes first."""
        remaining = self.change.norm(dim=1).argsort(descending=True)
        remaining = remaining[rows[remaining].any(1)]
        groups = []
        while len(remaining):
            is_parallel = rows[remaining] @ rows[remaining[0]] >= _PARALLEL
            is_parallel[0] = True
            groups.append(remaining[is_parallel])
            remaining = remaining[~is_parallel]
        return groups

    def nearest_sums(self, targets: Tensor) -> tuple[Tensor, Tensor]:
        """``(G, T + 1)`` words of which the sum of the table's vectors is near the targets, and its cosine ``(G,)``."""
        mean = self.memory.mean
        table = self.memory.table
        positions = len(table)
        words = torch.zeros(len(targets), positions, dtype=torch.int64)
        parts = torch.zeros(len(targets), positions, len(mean))
        for _ in range(_SWEEPS):
            for position in reversed(range(positions)):
                without_word = mean + parts.sum(1) - parts[:, position]
                # Targets are known up to their length: it is that at which the present sum fits them best.
                state = without_word + parts[:, position]
                scale = (targets * state).sum(1) / state.square().sum(1)
                missing = targets / scale.clamp(min=1e-9)[:, None] - without_word
                # The word whose vector t is nearest to what is missing: largest m.t - |t|^2 / 2.
                score = missing @ table[position].T - table[position].square().sum(1) / 2
                score[:, 0] = -torch.inf
                words[:, position] = score.argmax(1)
                parts[:, position] = table[position][words[:, position]]
        return words, self.fits(mean + parts.sum(1), targets)

    def searched(self, text: Tensor, target: Tensor) -> tuple[Tensor, float]:
        """The text at which no neighbour is nearer to a target ``(R,)``, from a first one, and its fit."""
        memory = self.memory
        state = memory.states(text[None])[0]
        fit = float(self.fits(state[None], target[None])[0])
        for _ in range(_STEPS):
            neighbours = self.neighbours(text, state, target)
            states = memory.states(neighbours)
            fits = self.fits(states, target.expand(len(states), -1))
            best = int(fits.argmax())
            if float(fits[best]) <= fit:
                break
            text = neighbours[best]
            state = states[best]
            fit = float(fits[best])
        return text, fit

    def neighbours(self, text: Tensor, state: Tensor, target: Tensor) -> Tensor:
        """Texts with another word at one place, those that should be nearest, and with two words exchanged."""
        table = self.memory.table
        scale = (target @ state / state.square().sum()).clamp(min=1e-9)
        missing = target / scale - state
        positions = torch.arange(len(text))
        # Another word at one place: the vectors nearest to the present one and what is missing of the target.
        present = table[positions, text]
        score = torch.einsum("pvr,pr->pv", table, missing + present) - table.square().sum(2) / 2
        score[:, 0] = -torch.inf
        best = score.flatten().topk(_TRIED).indices
        replaced = text.repeat(len(best), 1)
        replaced[torch.arange(len(best)), best // table.shape[1]] = best % table.shape[1]
        # Two words exchanged, at every pair of places.
        pairs = torch.combinations(positions)
        swapped = text.repeat(len(pairs), 1)
        swapped[torch.arange(len(pairs)), pairs[:, 0]] = text[pairs[:, 1]]
        swapped[torch.arange(len(pairs)), pairs[:, 1]] = text[pairs[:, 0]]
        return torch.cat([replaced, swapped])

    def fits(self, states: Tensor, targets: Tensor) -> Tensor:
        """``(N,)`` cosine of states and targets ``(N, R)``; of signs, over the largest that a state can have."""
        cosine = (normalize(states) * normalize(targets)).sum(1)
        if not self.signs:
            return cosine
        # The signs of z itself, of R numbers, have the cosine |z|_1 / (|z|_2 sqrt(R)) with it.
        largest: Tensor = states.abs().sum(1) / (states.norm(dim=1) * states.shape[1] ** 0.5)
        return cosine / largest
