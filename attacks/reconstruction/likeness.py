"""How like reconstructed records are to the true ones: matching, PSNR, SSIM, identification, ROUGE."""

from collections.abc import Sequence

import torch
from torch import Tensor

OTHERS = 99
"""Largest number of other records of the same class among which a record is to be identified."""
_LEAST_ERROR = 1e-8
"""Mean squared error of 80 dB."""
_SMALLEST_IMAGE = 11
"""Height and width of the window of SSIM, in pixels."""


def nearest(guesses: Tensor, originals: Tensor) -> Tensor:
    """``(N, *shape)`` reconstruction of each original ``(N, *shape)``, by the assignment of least squared error.

    Of fewer than N ``guesses (M, *shape)``, the remaining originals get zeros.
    """
    from scipy.optimize import linear_sum_assignment  # slow to import

    cost = torch.cdist(guesses.double().flatten(1), originals.double().flatten(1)).square()
    chosen, of = linear_sum_assignment(cost.numpy())
    matched = torch.zeros_like(originals)
    matched[torch.from_numpy(of)] = guesses[torch.from_numpy(chosen)].to(matched.dtype)
    return matched


def likeness(matched: Sequence[Tensor], originals: Sequence[Tensor]) -> dict[str, Tensor]:
    """``psnr`` and, of large enough images, ``ssim`` ``(V,)``: means over each client's records.

    Of each client, ``matched (N, *shape)`` by `nearest` and ``originals (N, *shape)``.
    """
    shape = originals[0].shape[1:]
    has_ssim = len(shape) == 3 and min(shape[1:]) >= _SMALLEST_IMAGE
    psnr, ssim = list[Tensor](), list[Tensor]()
    for guess, original in zip(matched, originals, strict=True):
        squared_error = (guess.double() - original.double()).square().flatten(1).mean(1)
        # PSNR of numbers in [0, 1] in dB: -10 log10 of the mean squared error.
        psnr.append((-10 * squared_error.clamp(min=_LEAST_ERROR).log10()).mean())
        if has_ssim:
            ssim.append(_ssim(guess, original))
    metrics = {"psnr": torch.stack(psnr)}
    if has_ssim:
        metrics["ssim"] = torch.stack(ssim)
    return metrics


def _ssim(matched: Tensor, originals: Tensor) -> Tensor:
    from torchmetrics.functional.image import structural_similarity_index_measure  # slow to import

    if not len(originals):
        return torch.tensor(torch.nan, dtype=torch.float64)
    each = structural_similarity_index_measure(matched.float(), originals.float(), reduction="none", data_range=1.0)
    assert isinstance(each, Tensor)
    return each.double().mean()


def identified(
    matched: Sequence[Tensor],
    originals: Sequence[Tensor],
    labels: Sequence[Tensor],
    auxiliary: tuple[Tensor | None, Tensor | None],
) -> dict[str, Tensor]:
    """Share of the records that are nearer to their reconstruction than all others of the same class, and its chance.

    Of each client, ``matched (N, *shape)`` by `nearest`, zeros for a record without reconstruction, ``originals (N,
    *shape)`` and ``labels (N,)``. The others are the adversary's `auxiliary` records ``(A, *shape)`` of the class, of
    their classes ``(A,)``, then those of the other clients, up to `OTHERS`.
    """
    images, classes = auxiliary
    # Records to be told apart from, with their class and the client that has them: -1 for the adversary's.
    pool = torch.cat(list(originals)).flatten(1).double()
    pool_class = torch.cat(list(labels))
    owner = torch.cat([torch.full((len(client_labels),), v) for v, client_labels in enumerate(labels)])
    if images is not None and classes is not None and images.shape[1:] == originals[0].shape[1:]:
        pool = torch.cat([images.flatten(1).double(), pool])
        pool_class = torch.cat([classes, pool_class])
        no_client = torch.full((len(classes),), -1)
        owner = torch.cat([no_client, owner])
    hits, chances = list[Tensor](), list[Tensor]()
    for v, (guesses, records) in enumerate(zip(matched, originals, strict=True)):
        is_candidate = (pool_class == labels[v][:, None]) & (owner != v)
        is_candidate &= is_candidate.cumsum(1) <= OTHERS  # the first of them, the adversary's before other clients'
        guess = guesses.flatten(1).double()
        record = records.flatten(1).double()
        own_distance = (guess - record).square().sum(1)
        distances = torch.cdist(guess, pool).square()
        nearest_other = distances.masked_fill(~is_candidate, torch.inf).amin(1)
        # No reconstruction, or nobody to be taken for, is no identification.
        is_reconstructed = guesses.flatten(1).any(1)
        hit = (own_distance < nearest_other) & is_reconstructed & is_candidate.any(1)
        hits.append(hit.double().mean())
        chance = 1 / (is_candidate.sum(1) + 1).double()
        chances.append(chance.mean())
    return {"identified": torch.stack(hits), "identified-by-chance": torch.stack(chances)}


_ROUGE = {"rouge1": "rouge1", "rouge2": "rouge2", "rougeL": "rouge-l"}
"""Metrics by their name in the library."""


class _Words:
    """Splits at spaces, as the words are token numbers."""

    def tokenize(self, text: str) -> list[str]:
        return text.split()


def rouge(guesses: Sequence[Tensor], originals: Sequence[Tensor]) -> dict[str, Tensor]:
    """``rouge1``, ``rouge2``, ``rouge-l`` and ``words-in-place`` ``(V,)``, means over each client's sentences.

    Sentences are matched by the greatest sum of ROUGE-1. Each client has ``guesses (M, L)`` and ``originals (N, L)``,
    token numbers padded with 0. Of all words of a client, `words-in-place` are at the same place in their guess.

    >>> found = rouge([torch.tensor([[2, 1, 3]])], [torch.tensor([[1, 2, 3]])])
    >>> [round(float(mean), 2) for mean in found.values()]
    [1.0, 0.0, 0.67, 0.33]

    References:
        [Lin04].
    """
    from rouge_score.rouge_scorer import RougeScorer  # slow to import
    from scipy.optimize import linear_sum_assignment

    matching = RougeScorer(["rouge1"], tokenizer=_Words())
    scorer = RougeScorer([*_ROUGE], tokenizer=_Words())
    means = torch.zeros(len(originals), len(_ROUGE), dtype=torch.float64)
    in_place = torch.zeros(len(originals), dtype=torch.float64)
    for v, (guessed, true) in enumerate(zip(guesses, originals, strict=True)):
        texts = _texts(guessed)
        sentences = _texts(true)
        if not sentences:
            means[v] = torch.nan
            in_place[v] = torch.nan
        if not sentences or not texts:
            continue
        first = [[matching.score(sentence, text)["rouge1"].fmeasure for text in texts] for sentence in sentences]
        # All are means over all sentences in the assignment of greatest ROUGE-1; one without a text counts 0.
        for sentence, text in zip(*linear_sum_assignment(first, maximize=True), strict=True):
            scores = scorer.score(sentences[sentence], texts[text])
            measures = [scores[kind].fmeasure for kind in _ROUGE]
            means[v] += torch.tensor(measures, dtype=torch.float64) / len(sentences)
            in_place[v] += _equal_words(true[sentence], guessed[text])
        in_place[v] /= (true > 0).sum()
    return {**dict(zip(_ROUGE.values(), means.T, strict=True)), "words-in-place": in_place}


def _equal_words(sentence: Tensor, text: Tensor) -> int:
    """Number of places at which a text ``(L',)`` has the word of a sentence ``(L,)``."""
    shorter = min(len(sentence), len(text))
    is_equal = (sentence[:shorter] == text[:shorter]) & (sentence[:shorter] > 0)
    return int(is_equal.sum())


def _texts(tokens: Tensor) -> list[str]:
    return [" ".join(str(token) for token in row if token) for row in tokens.tolist()]
