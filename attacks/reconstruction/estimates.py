"""Estimate of attacks that reconstruct training examples."""

import itertools
import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from fedleak.attacks.applicability import without_records, without_texts
from fedleak.attacks.reconstruction.description_length import description_bits
from fedleak.attacks.reconstruction.likeness import identified, likeness, nearest, rouge
from fedleak.attacks.reconstruction.shown_texts import shown_texts
from fedleak.attacks.reconstruction.table_rows import row_accuracy
from fedleak.core.attack import Attack
from fedleak.core.estimates import Estimate, EstimateError, Reconstruction, Scores, check_tensor
from fedleak.core.metric import CORRELATION, POSITIVE, SHARE, Metric
from fedleak.core.record_hash import grid_of, record_hashes
from fedleak.core.table_columns import COLUMNS, TableColumns
from fedleak.core.view import View

_SHOWN = 8
"""Largest number of reconstructed images that a report shows of one view."""


@dataclass(frozen=True, kw_only=True)
class ReconstructionEstimate(Estimate):
    """Training examples of each client.

    Scored against salted hashes: a record counts as recovered only if every number in it is right, of a table's row
    within the precision of its column, see `fedleak.core.record_hash`. If the recording keeps the records themselves,
    each true record is matched with a reconstructed one (the assignment of least squared error, or of greatest ROUGE-1
    for token numbers) and compared, rows of a table also column by column
    (`fedleak.attacks.reconstruction.table_rows`). An exact one among M reconstructions adds its description length, see
    `fedleak.attacks.reconstruction.description_length`, less ``log2(M + 1)`` bits that name it. Without hashes, the
    share of certified records is all that is reported.

    Attributes:
        records: ``(V, M, *shape)`` as the network gets them: images in [0, 1], or int64 token numbers padded with 0.
        labels: ``(V, M)`` int64 classes, -1 if unknown.
        certified: ``(V, M)`` bool, whether the attack is certain that the record is exact.
        count: ``(V,)`` int64 number of records of each client; the others are padding.
    """

    inferred = "some of its training examples themselves"
    truth = ("record_hash", "record_salt")
    metrics: ClassVar[tuple[str | Metric, ...]] = (
        Metric(
            "recovered",
            "Recovered is the share of a client's training examples that are reconstructed exactly.",
            judged=True,
            span=(0.0, 1.0),
            words="rebuilds {} of 100 training examples exactly",
        ),
        Metric(
            "certified",
            "Certified is the share of a client's training examples of which the attack is certain.",
            leak=False,
            span=(0.0, 1.0),
        ),
        Metric(
            "false-certified",
            "False certified is the number of reconstructions called certain that are no example of the client.",
            leak=False,
            lower_is_better=True,
            span=POSITIVE,
        ),
        Metric("label-accuracy", "Label accuracy is the share of recovered examples with the right class.", span=SHARE),
        Metric(
            "psnr",
            "PSNR is the peak signal-to-noise ratio in dB, 80 at most; no image reaches about 10.",
            span=(-math.inf, 80.0),
        ),
        Metric("ssim", "SSIM is the structural similarity, 1 for equal images.", span=CORRELATION),
        Metric(
            "identified",
            "Identified is the share of training examples that are nearer to their reconstruction than up to 99 others"
            " of the same class.",
            judged=True,
            span=(0.0, 1.0),
            words="makes likenesses by which {} of 100 training examples are recognised among up to 99 others of their"
            " class",
        ),
        Metric("identified-by-chance", "Identified by chance is that share for guessing.", leak=False, span=SHARE),
        Metric("rouge1", "ROUGE-1 is the F1 of the words of a sentence and of its reconstruction.", span=(0.0, 1.0)),
        Metric("rouge2", "ROUGE-2 is that of pairs of neighbouring words.", span=(0.0, 1.0)),
        Metric("rouge-l", "ROUGE-L is that of the longest common subsequence.", span=(0.0, 1.0)),
        Metric(
            "words-in-place",
            "Words in place is the share of the words of a client's sentences that are right at their place.",
            span=(0.0, 1.0),
        ),
        Metric(
            "numbers-within-step",
            "Numbers within a step is the share of a table's numbers that are reconstructed to a step of their column.",
            span=(0.0, 1.0),
        ),
        Metric(
            "categories",
            "Categories is the share of a table's categories that are reconstructed.",
            span=(0.0, 1.0),
        ),
        Metric(
            "unique-recovered",
            "Unique recovered is the number of exact reconstructions that occur once in the whole table, each of which"
            " identifies its person.",
            span=POSITIVE,
        ),
        Metric(
            "unique",
            "Unique is the number of a client's rows that occur once in the whole table.",
            leak=False,
            span=POSITIVE,
        ),
        *("bits", "bits-left"),
    )
    records: Tensor
    labels: Tensor
    certified: Tensor
    count: Tensor

    @classmethod
    def inapplicable(cls, view: View, truth: Collection[str]) -> str | None:
        return without_records(view, truth)

    def check(self, view: View) -> None:
        slots = self.records.shape[1] if self.records.dim() > 1 else 0
        size = (view.victims, slots)
        check_tensor("count", self.count, size[:1], dtype=torch.int64)
        check_tensor("labels", self.labels, size, dtype=torch.int64)
        check_tensor("certified", self.certified, size, dtype=torch.bool)
        if self.records.dim() < 3 or self.records.shape[:2] != size:
            raise EstimateError(
                f"records: expected (V, M, ...) with V = {view.victims}, got {tuple(self.records.shape)}"
            )
        is_record = torch.arange(slots) < self.count[:, None]
        if bool((self.count > slots).any()) or bool((self.certified & ~is_record).any()):
            raise EstimateError(f"count: expected at most {slots}, and nothing certified after it")
        if not bool(torch.isfinite(self.records[is_record].double()).all()):
            raise EstimateError("records: expected finite numbers")

    def score(self, view: View, truth: Mapping[str, Tensor]) -> Scores:
        """Shares of recovered records, and how like the others are to the true ones where these are kept.

        Without the records' hashes, only the share of certain ones.
        """
        if "record_hash" not in truth:
            return Scores({"certified": self.certified.sum(1) / view.example_counts.double()})
        is_record = (truth["record_hash"] != 0).any(2)  # clients with fewer records are padded with hashes of 0
        size = is_record.sum(1)
        metrics, exact = self._by_hash(truth, is_record)
        if "record_copies" in truth:
            metrics |= _unique(truth["record_copies"], is_record, exact)
        if "records" not in truth or not bool(size.any()):
            return Scores(metrics, items=size, positives=size)
        guesses = [self.records[v, : int(count)] for v, count in enumerate(self.count)]
        originals = [truth["records"][v, mask] for v, mask in enumerate(is_record)]
        lengths = description_bits(originals, truth)
        if lengths is not None:
            metrics |= self._bits(lengths, exact)
        if not self.records.is_floating_point():
            details = shown_texts(guesses, originals, view)
            return Scores({**metrics, **rouge(guesses, originals)}, items=size, positives=size, details=details)
        if COLUMNS in view.auxiliary:
            columns = TableColumns.of(view.auxiliary[COLUMNS])
            guessed_values = [columns.decode(rows) for rows in guesses]
            true_values = [columns.decode(rows) for rows in originals]
            metrics |= row_accuracy(guessed_values, true_values, columns)
        matched = [nearest(*pair) for pair in zip(guesses, originals, strict=True)]
        metrics |= likeness(matched, originals)
        if "record_labels" in truth:
            labels = [truth["record_labels"][v, mask] for v, mask in enumerate(is_record)]
            auxiliary = view.auxiliary.get("images"), view.auxiliary.get("labels")
            metrics |= identified(matched, originals, labels, auxiliary)
        shown = None
        if self.records.dim() == 5:
            shown = Reconstruction(torch.cat(originals)[:_SHOWN], torch.cat(matched)[:_SHOWN])
        return Scores(metrics, items=size, positives=size, reconstruction=shown)

    def _bits(self, lengths: Sequence[Tensor], exact: Sequence[Tensor]) -> dict[str, Tensor]:
        """Bits of the exact reconstructions, of records with these description lengths ``(N_v,)``; and of the rest."""
        # Of M reconstructions, it takes log2(M + 1) bits to say which one a record is, or none.
        name_bits = (self.count + 1).double().log2()
        recovered_bits, all_bits = list[Tensor](), list[Tensor]()
        for record_bits, name, is_exact in zip(lengths, name_bits, exact, strict=True):
            recovered_bits.append((record_bits - name).clamp(min=0)[is_exact].sum())
            all_bits.append(record_bits.sum() if len(record_bits) else record_bits.new_tensor(torch.nan))
        total = torch.stack(all_bits)
        bits = torch.stack(recovered_bits) + 0 * total  # NaN for clients without records
        return {"bits": bits, "bits-left": total - bits}

    def _by_hash(self, truth: Mapping[str, Tensor], is_record: Tensor) -> tuple[dict[str, Tensor], list[Tensor]]:
        """Metrics, and which of each client's records ``(N_v,)`` have an exact reconstruction."""
        exact = []
        size = is_record.sum(1).double()
        size = size.masked_fill(size == 0, torch.nan)
        recovered, right_label, false_certified = torch.zeros(3, len(size), dtype=torch.float64)
        labelled = "record_labels" in truth and bool((self.labels >= 0).any())
        for v, count in enumerate(self.count.tolist()):
            true_hashes = [row.numpy().tobytes() for row in truth["record_hash"][v, is_record[v]]]
            hashes = record_hashes(self.records[v, :count], truth["record_salt"][v], grid_of(truth, v))
            guessed_hashes = [row.numpy().tobytes() for row in hashes]
            # A record that the client has n times is recovered n times by n reconstructions only.
            unmatched = Counter(true_hashes) & Counter(guessed_hashes)
            recovered[v] = unmatched.total()
            is_exact = []
            for hashed in true_hashes:
                is_exact.append(unmatched[hashed] > 0)
                unmatched[hashed] -= 1
            exact.append(torch.tensor(is_exact, dtype=torch.bool))
            certified = self.certified[v, :count].tolist()
            certified_hashes = Counter(itertools.compress(guessed_hashes, certified))
            false_certified[v] = (certified_hashes - Counter(true_hashes)).total()
            if labelled:
                true_labels = truth["record_labels"][v, is_record[v]].tolist()
                true_pairs = Counter(zip(true_hashes, true_labels, strict=True))
                guessed_pairs = Counter(zip(guessed_hashes, self.labels[v, :count].tolist(), strict=True))
                right_label[v] = (true_pairs & guessed_pairs).total()
        metrics = {
            "recovered": recovered / size,
            "certified": self.certified.sum(1) / size,
            "false-certified": false_certified,
        }
        if labelled:
            metrics["label-accuracy"] = right_label / recovered.masked_fill(recovered == 0, torch.nan)
        return metrics, exact


def _unique(copies: Tensor, is_record: Tensor, exact: Sequence[Tensor]) -> dict[str, Tensor]:
    """How many of each client's records occur once in the whole table, and how many of these are exact.

    Args:
        copies: ``(V, M)`` how often each record occurs.
        is_record: ``(V, M)`` False for padding.
        exact: ``(N_v,)`` which of each client's records have an exact reconstruction.
    """
    unique, recovered = list[Tensor](), list[Tensor]()
    for client_copies, mask, is_exact in zip(copies, is_record, exact, strict=True):
        is_unique = client_copies[mask] == 1
        unique.append(is_unique.sum().double())
        recovered.append((is_unique & is_exact).sum().double())
    return {"unique": torch.stack(unique), "unique-recovered": torch.stack(recovered)}


@dataclass(frozen=True, kw_only=True)
class TextsEstimate(ReconstructionEstimate):
    """Texts of each client."""

    inferred = "which texts it was trained on, word by word"

    @classmethod
    def inapplicable(cls, view: View, truth: Collection[str]) -> str | None:
        return without_texts(view, truth)


@dataclass(frozen=True, kw_only=True)
class ReconstructionAttack(Attack):
    """Base class of attacks that reconstruct training examples."""

    family = "reconstruction"
    estimates: ClassVar[type[Estimate]] = ReconstructionEstimate


def reconstruction(
    records: Sequence[Tensor], *, labels: Sequence[Tensor] | None = None, certified: Sequence[Tensor] | None = None
) -> ReconstructionEstimate:
    """Estimate of any number of records of each client.

    Args:
        records: ``(M_v, *shape)`` of each client, one shape; an empty tensor ``(0, *shape)`` for none.
        labels: ``(M_v,)`` classes of each client's records; None if unknown.
        certified: ``(M_v,)`` bool, whether each record is certain; None for no record.
    """
    counts = [len(client_records) for client_records in records]
    if labels is None:
        labels = [torch.full((count,), -1) for count in counts]
    if certified is None:
        certified = [torch.zeros(count, dtype=torch.bool) for count in counts]
    return ReconstructionEstimate(
        records=pad_sequence(list(records), batch_first=True),
        labels=pad_sequence([classes.long() for classes in labels], batch_first=True, padding_value=-1),
        certified=pad_sequence(list(certified), batch_first=True),
        count=torch.tensor(counts, dtype=torch.int64),
    )
