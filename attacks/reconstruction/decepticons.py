"""Decepticons: texts from the gradients of a transformer that the server made to sort tokens into bins."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from fedleak.attacks.reconstruction.estimates import ReconstructionAttack, TextsEstimate, reconstruction
from fedleak.attacks.reconstruction.last_words import last_words
from fedleak.client.pretrained import PretrainedAlgorithm
from fedleak.core.attack import Variants
from fedleak.core.errors import InputError, ViewError
from fedleak.core.progress import with_progress
from fedleak.core.ranges import OpenUnitInterval, PositiveInt
from fedleak.core.threat_model import ThreatModel
from fedleak.core.view import RoundView
from fedleak.server.token_imprint import Gpt2Layers, marks_of

_ROUNDINGS = 8.0
"""Least change of a bin, in roundings of the biases that are subtracted."""
_ROWS_AT_ONCE = 64
"""Rows that are compared with all words together."""


@dataclass(frozen=True)
class Readings:
    """What bins hold: a token each, or a mixture of several.

    Attributes:
        words: ``(K,)`` most similar word.
        places: ``(K,)`` its place.
        cosines: ``(K,)`` similarity of the bin's contents and that word at that place, 1 for a token alone.
        first_words: ``(K,)`` word whose mark is nearest to the bin's: the first one of the token's text.
    """

    words: Tensor
    places: Tensor
    cosines: Tensor
    first_words: Tensor


@dataclass(frozen=True, kw_only=True)
class Decepticons(ReconstructionAttack):
    """Tokens from bins of the feed-forward layers that `fedleak.server.token_imprint.TokenImprint` made.

    With ReLU, units i and i + 1 of a block get the same gradient g_t from every token t that excites both, and their
    weights differ in nothing but the edge of their bin. (1) The difference of their changes is ``sum g_t u_t`` for the
    weights and ``sum g_t`` for the biases, over the tokens in bin i: the quotient is the input u_t of one token, if it
    is there alone. (2) Up to its mean and its length, u_t has the vector of a word plus that of a place: the pair with
    the greatest cosine is the token and where it stands. (3) The mark of u_t is that of the first word of its text,
    which the server knows for every word. Tokens with one mark are a text; where a text has no token at a place, one of
    the most similar mixtures is put there, and else 0. The last word of a text is no input where the next word is the
    task, so that it is never read.

    The authors assign places first, remove the place's vector, assign words that the last layer's bias gave and group
    marks by k-means into the reported number of texts. Here a word and its place are decided together, and marks are
    compared with those of all words, which needs no number of texts; two texts with the same first word share a mark in
    both. A smooth activation (GELU) has no bins: breaching replaces it by ReLU.

    Threat model: active server, which sends the network; one update of plain gradient descent; it knows the network and
    the tokenizer, and no text of the client.

    Args:
        alone: least cosine of a token that is alone in its bin.
        marks: numbers of a text's mark, as in the server's manipulation.
        last_words: add the last words, by this project's `last_words`.

    Variants:
        last-words: adds the last words, so that texts can be exact.

    Raises:
        ViewError: the network is no GPT-2 that is trained whole, or clients do not descend plainly.

    References:
        [Fowl23], section 3, and the authors' code in breaching.

    Example:
        >>> import torch
        >>> from fedleak.attacks.reconstruction import Decepticons
        >>> from fedleak.attacks.reconstruction.toy import toy
        >>> view, truth = toy("imprinted-texts")
        >>> estimate = Decepticons()(view, generator=torch.Generator().manual_seed(0))
        >>> round(float(estimate.score(view, truth).metrics["words-in-place"].mean()), 2)
        0.81
    """

    name = "decepticons"
    estimates = TextsEstimate
    references = ("Fowl23, section 3",)
    cost = "seconds per victim"
    threat_model = ThreatModel(
        sees="the update of the whole network",
        knows="the network and the tokenizer",
        needs=("deltas", "model", PretrainedAlgorithm),
    )

    variants: ClassVar[Variants] = {"last-words": {"last_words": True, "references": ()}}

    alone: OpenUnitInterval = 0.999
    marks: PositiveInt = 6
    last_words: bool = False

    def run(self, view: RoundView, *, generator: torch.Generator) -> TextsEstimate:
        algorithm = view.require(PretrainedAlgorithm)
        if not algorithm.local.plain_sgd:
            raise ViewError(f"expected plain gradient descent, got {algorithm.local.optimizer}")
        model = dict(view.model)
        try:
            layers = Gpt2Layers.of(model)
        except InputError as error:
            raise ViewError(str(error)) from None
        needed = [f"{block}mlp.c_fc.{part}" for block in layers.blocks for part in ("weight", "bias")]
        missing = [name for name in needed if name not in view.deltas]
        if missing:
            raise ViewError(f"expected the deltas of the first feed-forward layers; got a view without {missing[0]}")
        model[layers.words] = algorithm.by_token(model[layers.words])
        records = list[Tensor]()
        for victim in with_progress(range(view.victims)):
            change = {name: view.deltas[name][victim] for name in needed}
            rows = self.rows(model, layers, change)
            texts = self.texts(self.read(model, layers, rows), int(view.example_counts[victim]))
            if self.last_words and len(texts):
                update = {name: view.deltas[name][victim] for name in view.deltas}
                texts = with_last_words(algorithm, dict(view.model), update, texts)
            records.append(texts)
        longest = max((texts.shape[1] for texts in records), default=1)
        padded = [torch.nn.functional.pad(texts, (0, longest - texts.shape[1])) for texts in records]
        return TextsEstimate(**vars(reconstruction(padded)))

    def rows(self, model: dict[str, Tensor], layers: Gpt2Layers, change: dict[str, Tensor]) -> Tensor:
        """``(K, D)`` contents of the bins that changed."""
        contents = list[Tensor]()
        for (weight, bias), (_, sent_bias) in zip(layers.units(change), layers.units(model), strict=True):
            in_bin = (bias[:-1] - bias[1:]).double()
            total = (weight[:-1] - weight[1:]).double()
            # A client sends the difference of two models: biases are rounded to their own size.
            rounding = torch.finfo(sent_bias.dtype).eps * sent_bias[:-1].abs().double()
            is_filled = in_bin.abs() > _ROUNDINGS * rounding
            contents.append(total[is_filled] / in_bin[is_filled, None])
        return torch.cat(contents)

    def read(self, model: dict[str, Tensor], layers: Gpt2Layers, rows: Tensor) -> Readings:
        """Most similar word and place of each of the contents ``(K, D)``, and the word of its mark."""
        measured = slice(self.marks, -1)
        words = model[layers.words][:, measured].float()
        places = model[layers.places][:, measured].float()
        # Normalisations subtract a mean and divide by a length, so that vectors are compared without them.
        words = words - words.mean(1, keepdim=True)
        places = places - places.mean(1, keepdim=True)
        contents = rows[:, measured]
        centred = contents - contents.mean(1, keepdim=True)
        unit = torch.nn.functional.normalize(centred, dim=1).float()
        squares = words.square().sum(1)
        best = torch.full((len(rows),), -torch.inf)
        best_word = torch.zeros(len(rows), dtype=torch.int64)
        best_place = torch.zeros(len(rows), dtype=torch.int64)
        for some in torch.split(torch.arange(len(rows)), _ROWS_AT_ONCE):
            of_words = unit[some] @ words.T
            of_places = unit[some] @ places.T
            for place, vector in enumerate(places):
                # cos(u, w + p) = (u w + u p) / |w + p|
                lengths = (squares + 2 * words @ vector + vector.square().sum()).clamp(min=1e-12).sqrt()
                cosines = (of_words + of_places[:, place, None]) / lengths
                cosines[:, 0] = -1  # 0 is padding
                cosine, word = cosines.max(1)
                is_better = cosine > best[some]
                best[some] = torch.where(is_better, cosine, best[some])
                best_word[some] = torch.where(is_better, word, best_word[some])
                best_place[some] = torch.where(is_better, torch.tensor(place), best_place[some])
        # The exact pair gives the mean and the length that the normalisation used, and with them the mark.
        vectors = (words[best_word] + places[best_place]).double()
        raw = (model[layers.words][best_word] + model[layers.places][best_place])[:, measured].double()
        length = vectors.norm(dim=1) / centred.norm(dim=1).clamp(min=1e-12)
        offset = raw.mean(1) - length * contents.mean(1)
        mark = rows[:, : self.marks] * length[:, None] + offset[:, None]
        known = marks_of(model, layers, self.marks, torch.arange(1, len(words)))
        nearest = torch.cdist(mark, known).argmin(1) + 1
        return Readings(best_word, best_place, best, nearest)

    def texts(self, readings: Readings, count: int) -> Tensor:
        """``(N, L)`` texts of words, as many as are reported at most: those of the most tokens."""
        is_alone = readings.cosines >= self.alone
        texts = list[dict[int, int]]()
        for first in torch.unique(readings.first_words[is_alone]).tolist():
            chosen = is_alone & (readings.first_words == first)
            # Two texts with the same first word have two words at a place: the second begins a text of its own.
            alike = list[dict[int, int]]()
            for place, word in zip(readings.places[chosen].tolist(), readings.words[chosen].tolist(), strict=True):
                free = [text for text in alike if place not in text]
                if free:
                    free[0][place] = word
                else:
                    alike.append({place: word})
            texts += alike
        texts = sorted(texts, key=len, reverse=True)[:count]
        if not texts:
            return torch.zeros(0, 1, dtype=torch.int64)
        fill(texts, readings, is_alone)
        rows = []
        for text in texts:
            row = torch.zeros(max(text) + 1, dtype=torch.int64)
            for place, word in text.items():
                row[place] = word
            rows.append(row)
        return pad_sequence(rows, batch_first=True)


def with_last_words(
    algorithm: PretrainedAlgorithm, model: dict[str, Tensor], update: dict[str, Tensor], texts: Tensor
) -> Tensor:
    """Texts ``(N, L)`` with a word after the last one, where the words before all of them are known."""
    is_word = texts > 0
    lengths = is_word.sum(1)
    is_whole = bool((is_word[:, :-1] | ~is_word[:, 1:]).all()) and bool(is_word[:, 0].all())
    if algorithm.task != "causal-lm" or not is_whole:
        return texts
    gradient = {name: -change / algorithm.learning_rate for name, change in update.items()}
    found = last_words(algorithm, model, gradient, texts)
    longer = torch.nn.functional.pad(texts, (0, 1))
    longer[torch.arange(len(texts)), lengths] = found.words
    return longer


def fill(texts: list[dict[int, int]], readings: Readings, is_alone: Tensor) -> None:
    """Puts the words of mixtures, the most similar first, at places that a text has free before its last one."""
    order = readings.cosines.argsort(descending=True)
    for row in order[~is_alone[order]].tolist():
        place = int(readings.places[row])
        free = [text for text in texts if place not in text and place < max(text)]
        # A mixture's own mark is tried first.
        marked = [text for text in free if text.get(0) == int(readings.first_words[row])]
        for text in (marked or free)[:1]:
            text[place] = int(readings.words[row])
