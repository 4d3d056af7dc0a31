"""Texts from the change of an adapter whose units are excited by single texts."""

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.func import jvp
from torch.nn.functional import normalize, pad

from fedleak.attacks.applicability import without_texts
from fedleak.attacks.reconstruction.estimates import ReconstructionAttack, ReconstructionEstimate, reconstruction
from fedleak.client.pretrained import PretrainedAlgorithm
from fedleak.client.pretrained_examples import TOKENS
from fedleak.core.errors import ViewError
from fedleak.core.estimates import Scores
from fedleak.core.metric_table import Metric
from fedleak.core.progress import with_progress
from fedleak.core.ranges import AtLeastTwo, OpenUnitInterval, PositiveInt
from fedleak.core.seeding import generator_for
from fedleak.core.threat_model import ThreatModel
from fedleak.core.view import RoundView, View

_TEXTS_AT_ONCE = 2048
_RANDOM_TEXTS = 256
"""Random texts from which the mean state is computed."""
_PARALLEL = 0.999
"""Cosine above which two rows are taken to be of the same text."""
_SWEEPS = 8
_STARTS = 0.93
"""Cosine of a row with the nearest sum of words, of a text in any order, below which its text is not searched."""
_TRIED = 24
"""Other words that are tried in a step of the search for a text."""
_STEPS = 40
_UNITS = 6
"""Largest number of units of one text from which its last word is computed."""


@dataclass(frozen=True, kw_only=True)
class MemoryRowsEstimate(ReconstructionEstimate):
    """Texts of each client, of which the last word may be wrong where the others are right."""

    inferred = "which texts it was trained on, word by word"
    metrics = (
        *ReconstructionEstimate.metrics,
        Metric(
            "read-recovered",
            "Read recovered is the share of a client's texts of which all words but the last are reconstructed.",
            judged=True,
            span=(0.0, 1.0),
            words="rebuilds {} of 100 training texts but for the last word",
        ),
    )

    @classmethod
    def inapplicable(cls, view: View, truth: Collection[str]) -> str | None:
        return without_texts(view, truth)

    def score(self, view: View, truth: Mapping[str, Tensor]) -> Scores:
        scores = super().score(view, truth)
        if "records" not in truth:
            return scores
        shares = []
        for victim, texts in enumerate(truth["records"]):
            own = [tuple(text[text > 0].tolist()[:-1]) for text in texts if bool(text.any())]
            count = int(self.count[victim])
            found = {tuple(text[text > 0].tolist()[:-1]) for text in self.records[victim, :count]}
            shares.append(sum(text in found for text in own) / max(len(own), 1))
        return dataclasses.replace(scores, metrics={**scores.metrics, "read-recovered": torch.tensor(shares).double()})


@dataclass(frozen=True, kw_only=True)
class MemoryRows(ReconstructionAttack):
    """Search for the text whose state at one place is a row of the change of B.

    For an adapter ``B A`` of a feed-forward layer with input z, row u of the change of B is a sum of multiples of
    ``A z_T``, one for each text that excites unit u at its place T. With `fedleak.server.memory_adapter.MemoryAdapter`
    this is often one text. (1) T is the last place of a text that predicts a word. (2) Parallel
    rows are one text. Its words up to T are the sum, over the places, of vectors of a table that is nearest to the
    row: coordinate descent, then steps to the neighbouring text (another word, or two words exchanged) whose own state,
    computed by the network, is nearest, until it is the row. (3) The last word is the one whose gradient gives the
    lengths of the text's rows, which are linear in what should have been predicted. A text is returned if its state's
    cosine with the row is at least `cosine`. Under Adam the rows' signs are compared, and lengths give no last word.

    Texts are not certified: the last word is a choice among all words by few numbers.

    Threat model: active server, which sends the adapter; an update or a sum of updates; knows the base network and the
    tokenizer, and no text of the client.

    Args:
        words: number of words of the texts for which the server made its adapter.
        texts: number of rows whose texts are searched, for each reported text.
        cosine: least cosine of a text's state and its row.
        signs: under Adam, least cosine of a text's state and its row's signs, over the largest that signs can have.

    Raises:
        ViewError: the network does not predict next words, or its first adapter has no recorded B.

    References:
        This project for LoRA; the server's adapter is that of NeuroImprint, see `fedleak.server.memory_adapter`.
    """

    name = "memory-rows"
    estimates = MemoryRowsEstimate
    cost = "minutes per victim"
    threat_model = ThreatModel(
        sees="the update of the adapters",
        knows="the base network, the adapters and the tokenizer",
        needs=("deltas", "model", PretrainedAlgorithm),
    )

    words: AtLeastTwo = 8
    texts: PositiveInt = 4
    cosine: OpenUnitInterval = 0.99
    signs: OpenUnitInterval = 0.9999

    def run(self, view: RoundView, *, generator: torch.Generator) -> MemoryRowsEstimate:
        algorithm = view.require(PretrainedAlgorithm)
        if algorithm.task != "causal-lm":
            raise ViewError(f"expected a network that predicts the next words, got one for {algorithm.task}")
        model = dict(view.model)
        down, up = algorithm.adapted_inputs(model, torch.ones(1, 2, dtype=torch.int64), most=1)[0].adapters[0]
        if up not in view.deltas:
            raise ViewError(f"expected the delta of the first adapter, {up}; record it")
        memory = Memory.of(algorithm, model, down, up, self.words - 2)
        participants = max((release.participants or 1 for release in view.releases), default=1)
        found = []
        for victim in with_progress(range(view.victims)):
            change = view.deltas[up][victim].float()
            if not bool(change.any()):
                found.append(torch.zeros(0, 1, dtype=torch.int64))
                continue
            count = int(view.example_counts[victim]) * participants
            signs = algorithm.local.optimizer != "sgd"
            search = RowSearch(memory, change, signs=signs, cosine=self.signs if signs else self.cosine)
            texts, rows = search.texts(self.texts * count)
            texts, rows = texts[:count], rows[:count]
            found.append(torch.cat([texts, memory.next_words(texts, rows, change)[:, None]], dim=1))
        longest = max(text.shape[1] for text in found) if found else 1
        made = reconstruction([pad(text, (0, longest - text.shape[1])) for text in found])
        return MemoryRowsEstimate(**vars(made))


@dataclass(frozen=True)
class Memory:
    """What the server knows of the adapter that it sent.

    Attributes:
        algorithm: the clients' network and its loss.
        model: the adapters that were sent.
        down: ``(R, D)`` A.
        up: name of B.
        place: place T of a text whose state the rows have.
        mean: ``(R,)`` mean of A z_T.
        table: ``(T + 1, V, R)`` change of A z_T by each word at each place, from the mean.
    """

    algorithm: PretrainedAlgorithm
    model: dict[str, Tensor]
    down: Tensor
    up: str
    place: int
    mean: Tensor
    table: Tensor

    @classmethod
    def of(cls, algorithm: PretrainedAlgorithm, model: dict[str, Tensor], down: str, up: str, place: int) -> "Memory":
        """Memory of an adapter for a place."""
        matrix = {**algorithm.frozen, **model}[down].float()
        size = algorithm.vocabulary
        generator = generator_for(0, "texts of a memory")
        drawn = torch.randint(1, size, (_RANDOM_TEXTS, place + 1), generator=generator)
        made = cls(algorithm, model, matrix, up, place, torch.zeros(len(matrix)), torch.zeros(0))
        mean, words, rest = made.states(drawn).mean(0), torch.arange(size), drawn[0]
        tables = []
        for position in range(place + 1):
            texts = rest.repeat(size, 1)
            texts[:, position] = words
            own = made.states(texts)
            tables.append(own - own[1:].mean(0))
        return dataclasses.replace(made, mean=mean, table=torch.stack(tables))

    def states(self, texts: Tensor) -> Tensor:
        """``(N, R)`` A z_T of texts ``(N, T + 1)``."""
        parts = torch.split(texts, _TEXTS_AT_ONCE)
        read = [self.algorithm.adapted_inputs(self.model, part, layers=1)[0].vectors[:, -1] for part in parts]
        return torch.cat(read).float() @ self.down.T

    def next_words(self, texts: Tensor, rows: Sequence[Tensor], change: Tensor) -> Tensor:
        """``(N,)`` word after each of the texts ``(N, T + 1)``, of which unit numbers ``rows[n]`` have the state.

        Row u of the change is ``-c (p^T j_u - j_u[w]) A z``, where p are the predicted probabilities, j_u the
        derivative of the logits by the unit's input and w the next word. c is the median of those that fit best.
        """
        fits = [self._fits(text, own, change) for text, own in zip(texts, rows, strict=True)]
        if not fits:
            return torch.zeros(0, dtype=torch.int64)
        free = []
        for lengths, slopes in fits:
            if len(lengths) > 2:
                scale = (slopes * lengths[:, None]).sum(0) / slopes.square().sum(0).clamp(min=1e-30)
                left = (lengths[:, None] - scale * slopes).square().sum(0).where(scale > 0, torch.inf)
                free.append((float(left.min() / lengths.square().sum()), float(scale[left.argmin()])))
        if not free:
            return torch.zeros(len(texts), dtype=torch.int64)
        best = sorted(free)[: len(free) // 2 + 1]
        common = float(torch.tensor([own for _, own in best]).median())
        return torch.stack(
            [(lengths[:, None] - common * slopes).square().sum(0)[1:].argmin() + 1 for lengths, slopes in fits]
        )

    def _fits(self, text: Tensor, rows: Tensor, change: Tensor) -> tuple[Tensor, Tensor]:
        """``(U,)`` lengths of a text's rows along its state, and ``(U, V)`` ``j_u[w] - p^T j_u`` by next word w."""
        state = self.states(text[None])[0]
        rows = rows[:_UNITS]
        lengths = change[rows] @ state / state.square().sum()
        matrix = self.model[self.up]

        def logits(up: Tensor) -> Tensor:
            return self.algorithm.outputs({**self.model, self.up: up}, {TOKENS: text[None]})[0, -1]

        slopes = []
        for row in rows.tolist():
            direction = torch.zeros_like(matrix)
            direction[row] = state.to(matrix) / state.square().sum()
            predicted, slope = jvp(logits, (matrix,), (direction,))[:2]
            slopes.append(slope - predicted.softmax(0) @ slope)
        return lengths, torch.stack(slopes)


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
        excited = (self.change * self.memory.model[self.memory.up].float()).sum(
            1
        )  # a state that excites u: B_u A z > 0
        rows = rows * torch.where(excited < 0, -1.0, 1.0)[:, None]
        groups = self.groups(normalize(rows))
        targets = torch.stack([normalize(rows[own]).mean(0) for own in groups])
        start, nearness = self.nearest_sums(targets)
        several = torch.tensor([len(own) > 1 for own in groups])  # rows of several texts are hardly ever parallel
        chosen = (nearness + several).argsort(descending=True)[:most]
        chosen = chosen[nearness[chosen] >= _STARTS]
        found = dict[tuple[int, ...], tuple[float, Tensor]]()
        for number in chosen.tolist():
            text, fit = self.searched(start[number], targets[number])
            key = tuple(text.tolist())
            if fit >= self.cosine:
                before = found.get(key)
                units = groups[number] if before is None else torch.cat([before[1], groups[number]])
                found[key] = (fit if before is None else max(fit, before[0]), units)
        ordered = sorted(found.items(), key=lambda item: -item[1][0])
        texts = torch.tensor([key for key, _ in ordered], dtype=torch.int64).reshape(-1, self.memory.place + 1)
        return texts, [units for _, (_, units) in ordered]

    def groups(self, rows: Tensor) -> list[Tensor]:
        """Numbers of rows of length 1 that are parallel, the longest changes first."""
        left = self.change.norm(dim=1).argsort(descending=True)
        left = left[rows[left].any(1)]
        found = []
        while len(left):
            near = rows[left] @ rows[left[0]] >= _PARALLEL
            near[0] = True
            found.append(left[near])
            left = left[~near]
        return found

    def nearest_sums(self, targets: Tensor) -> tuple[Tensor, Tensor]:
        """``(G, T + 1)`` words of which the sum of the table's vectors is near the targets, and its cosine ``(G,)``."""
        mean, table = self.memory.mean, self.memory.table
        places = len(table)
        words = torch.zeros(len(targets), places, dtype=torch.int64)
        parts = torch.zeros(len(targets), places, len(mean))
        for _ in range(_SWEEPS):
            for place in reversed(range(places)):
                rest = mean + parts.sum(1) - parts[:, place]
                whole = rest + parts[:, place]
                scale = (targets * whole).sum(1) / whole.square().sum(1)
                left = targets / scale.clamp(min=1e-9)[:, None] - rest
                score = left @ table[place].T - table[place].square().sum(1) / 2
                score[:, 0] = -torch.inf
                words[:, place] = score.argmax(1)
                parts[:, place] = table[place][words[:, place]]
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
            text, state, fit = neighbours[best], states[best], float(fits[best])
        return text, fit

    def neighbours(self, text: Tensor, state: Tensor, target: Tensor) -> Tensor:
        """Texts with another word at one place, those that should be nearest, and with two words exchanged."""
        table = self.memory.table
        scale = (target @ state / state.square().sum()).clamp(min=1e-9)
        left = target / scale - state
        places = torch.arange(len(text))
        current = table[places, text]
        score = torch.einsum("pvr,pr->pv", table, left + current) - table.square().sum(2) / 2
        score[:, 0] = -torch.inf
        best = score.flatten().topk(_TRIED).indices
        others = text.repeat(len(best), 1)
        others[torch.arange(len(best)), best // table.shape[1]] = best % table.shape[1]
        pairs = torch.combinations(places)
        swapped = text.repeat(len(pairs), 1)
        swapped[torch.arange(len(pairs)), pairs[:, 0]] = text[pairs[:, 1]]
        swapped[torch.arange(len(pairs)), pairs[:, 1]] = text[pairs[:, 0]]
        return torch.cat([others, swapped])

    def fits(self, states: Tensor, targets: Tensor) -> Tensor:
        """``(N,)`` cosine of states and targets ``(N, R)``; of signs, over the largest that a state can have."""
        cosine = (normalize(states) * normalize(targets)).sum(1)
        if not self.signs:
            return cosine
        largest: Tensor = states.abs().sum(1) / (states.norm(dim=1) * states.shape[1] ** 0.5)
        return cosine / largest
