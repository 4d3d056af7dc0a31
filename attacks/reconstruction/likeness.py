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
    found = torch.zeros_like(originals)
    found[torch.from_numpy(of)] = guesses[torch.from_numpy(chosen)].to(found.dtype)
    return found


def likeness(found: Sequence[Tensor], originals: Sequence[Tensor]) -> dict[str, Tensor]:
    """``psnr`` and, of large enough images, ``ssim`` ``(V,)``: means over each client's records.

    Of each client, ``found (N, *shape)`` by `nearest` and ``originals (N, *shape)``.
    """
    errors = [(a.double() - b.double()).square().flatten(1).mean(1) for a, b in zip(found, originals, strict=True)]
    metrics = {"psnr": torch.stack([(-10 * e.clamp(min=_LEAST_ERROR).log10()).mean() for e in errors])}
    shape = originals[0].shape[1:]
    if len(shape) == 3 and min(shape[1:]) >= _SMALLEST_IMAGE:
        metrics["ssim"] = torch.stack([_ssim(a, b) for a, b in zip(found, originals, strict=True)])
    return metrics


def _ssim(found: Tensor, originals: Tensor) -> Tensor:
    from torchmetrics.functional.image import structural_similarity_index_measure  # slow to import

    if not len(originals):
        return torch.tensor(torch.nan, dtype=torch.float64)
    each = structural_similarity_index_measure(found.float(), originals.float(), reduction="none", data_range=1.0)
    assert isinstance(each, Tensor)
    return each.double().mean()


def identified(
    found: Sequence[Tensor],
    originals: Sequence[Tensor],
    labels: Sequence[Tensor],
    others: tuple[Tensor | None, Tensor | None],
) -> dict[str, Tensor]:
    """Share of the records that are nearer to their reconstruction than all others of the same class, and its chance.

    Of each client, ``found (N, *shape)`` by `nearest`, zeros for a record without reconstruction, ``originals (N,
    *shape)`` and ``labels (N,)``. The others are the adversary's auxiliary records ``(A, *shape)`` of the class, of
    their classes ``(A,)``, then those of the other clients, up to `OTHERS`.
    """
    images, classes = others
    owner = torch.cat([torch.full((len(own),), v) for v, own in enumerate(labels)])
    pool, kinds = torch.cat(list(originals)).flatten(1).double(), torch.cat(list(labels))
    if images is not None and classes is not None and images.shape[1:] == originals[0].shape[1:]:
        pool = torch.cat([images.flatten(1).double(), pool])
        kinds, owner = torch.cat([classes, kinds]), torch.cat([torch.full((len(classes),), -1), owner])
    hits, chance = [], []
    for v, (own, true) in enumerate(zip(found, originals, strict=True)):
        allowed = (kinds == labels[v][:, None]) & (owner != v)
        allowed &= allowed.cumsum(1) <= OTHERS
        guess = own.flatten(1).double()
        error = (guess - true.flatten(1).double()).square().sum(1)
        nearest_other = torch.cdist(guess, pool).square().masked_fill(~allowed, torch.inf).amin(1)
        given = own.flatten(1).any(1)
        hits.append(((error < nearest_other) & given & allowed.any(1)).double())
        chance.append(1 / (allowed.sum(1) + 1).double())
    return {
        "identified": torch.stack([value.mean() for value in hits]),
        "identified-by-chance": torch.stack([value.mean() for value in chance]),
    }


class _Words:
    """Splits at spaces, as the words are token numbers."""

    def tokenize(self, text: str) -> list[str]:
        return text.split()


def rouge(guesses: Sequence[Tensor], originals: Sequence[Tensor]) -> dict[str, Tensor]:
    """``rouge1`` and ``rouge2`` ``(V,)``, means over each client's sentences, matched by the greatest sum of ROUGE-1.

    Each client has ``guesses (M, L)`` and ``originals (N, L)``, token numbers padded with 0.

    References:
        Lin, "ROUGE: A Package for Automatic Evaluation of Summaries", 2004.
    """
    from rouge_score.rouge_scorer import RougeScorer  # slow to import
    from scipy.optimize import linear_sum_assignment

    scorer = RougeScorer(["rouge1", "rouge2"], tokenizer=_Words())
    rows = []
    for own, true in zip(guesses, originals, strict=True):
        texts, sentences = _texts(own), _texts(true)
        scored = [[scorer.score(sentence, text) for text in texts] for sentence in sentences]
        first = torch.tensor([[pair["rouge1"].fmeasure for pair in row] for row in scored], dtype=torch.float64)
        second = torch.tensor([[pair["rouge2"].fmeasure for pair in row] for row in scored], dtype=torch.float64)
        if not texts or not sentences:
            rows.append([0.0 if sentences else torch.nan] * 2)
            continue
        chosen = linear_sum_assignment(first.numpy(), maximize=True)
        rows.append([float(value[chosen].sum()) / len(sentences) for value in (first, second)])
    columns = torch.tensor(rows, dtype=torch.float64)
    return {"rouge1": columns[:, 0], "rouge2": columns[:, 1]}


def _texts(tokens: Tensor) -> list[str]:
    return [" ".join(str(token) for token in row if token) for row in tokens.tolist()]
