"""Estimate of attacks that reconstruct training examples."""

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from fedleak.attacks.applicability import without_records
from fedleak.attacks.reconstruction.description_length import description_bits
from fedleak.attacks.reconstruction.likeness import identified, likeness, nearest, rouge
from fedleak.attacks.reconstruction.table_rows import row_accuracy
from fedleak.core.attack import Attack
from fedleak.core.estimates import Estimate, EstimateError, Reconstruction, Scores, check_tensor
from fedleak.core.metric_table import CORRELATION, POSITIVE, SHARE, Metric
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
        size = (view.victims, self.records.shape[1] if self.records.dim() > 1 else 0)
        check_tensor("count", self.count, size[:1], dtype=torch.int64)
        check_tensor("labels", self.labels, size, dtype=torch.int64)
        check_tensor("certified", self.certified, size, dtype=torch.bool)
        if self.records.dim() < 3 or self.records.shape[:2] != size:
            raise EstimateError(
                f"records: expected (V, M, ...) with V = {view.victims}, got {tuple(self.records.shape)}"
            )
        valid = torch.arange(size[1]) < self.count[:, None]
        if bool((self.count > size[1]).any()) or bool((self.certified & ~valid).any()):
            raise EstimateError(f"count: expected at most {size[1]}, and nothing certified after it")
        if not bool(torch.isfinite(self.records[valid].double()).all()):
            raise EstimateError("records: expected finite numbers")

    def score(self, view: View, truth: Mapping[str, Tensor]) -> Scores:
        """Shares of recovered records, and how like the others are to the true ones where these are kept.

        Without the records' hashes, only the share of certain ones.
        """
        if "record_hash" not in truth:
            return Scores({"certified": self.certified.sum(1) / view.example_counts.double()})
        real = (truth["record_hash"] != 0).any(2)
        size = real.sum(1)
        metrics, exact = self._by_hash(truth, real)
        if "record_copies" in truth:
            unique = [truth["record_copies"][v, mask] == 1 for v, mask in enumerate(real)]
            metrics["unique"] = torch.stack([own.sum().double() for own in unique])
            hit = [(own & right).sum().double() for own, right in zip(unique, exact, strict=True)]
            metrics["unique-recovered"] = torch.stack(hit)
        shown = None
        if "records" not in truth or not bool(size.any()):
            return Scores(metrics, items=size, positives=size)
        guesses = [self.records[v, : int(count)] for v, count in enumerate(self.count)]
        originals = [truth["records"][v, mask] for v, mask in enumerate(real)]
        if (lengths := description_bits(originals, truth)) is not None:
            metrics |= self._bits(lengths, exact)
        if not self.records.is_floating_point():
            return Scores({**metrics, **rouge(guesses, originals)}, items=size, positives=size)
        if COLUMNS in view.auxiliary:
            columns = TableColumns.of(view.auxiliary[COLUMNS])
            metrics |= row_accuracy(
                [columns.decode(own) for own in guesses], [columns.decode(own) for own in originals], columns
            )
        matched = [nearest(*pair) for pair in zip(guesses, originals, strict=True)]
        metrics |= likeness(matched, originals)
        if "record_labels" in truth:
            pool = view.auxiliary.get("images"), view.auxiliary.get("labels")
            metrics |= identified(matched, originals, [truth["record_labels"][v, m] for v, m in enumerate(real)], pool)
        if self.records.dim() == 5:
            shown = Reconstruction(torch.cat(originals)[:_SHOWN], torch.cat(matched)[:_SHOWN])
        return Scores(metrics, items=size, positives=size, reconstruction=shown)

    def _bits(self, lengths: Sequence[Tensor], exact: Sequence[Tensor]) -> dict[str, Tensor]:
        """Bits of the exact reconstructions, of records with these description lengths ``(N_v,)``; and of the rest."""
        named = (self.count + 1).double().log2()
        added = [(own - name).clamp(min=0)[hit].sum() for own, name, hit in zip(lengths, named, exact, strict=True)]
        whole = torch.stack([own.sum() if len(own) else own.new_tensor(torch.nan) for own in lengths])
        bits = torch.stack(added) + 0 * whole
        return {"bits": bits, "bits-left": whole - bits}

    def _by_hash(self, truth: Mapping[str, Tensor], real: Tensor) -> tuple[dict[str, Tensor], list[Tensor]]:
        """Metrics, and which of each client's records ``(N_v,)`` have an exact reconstruction."""
        exact = []
        size = real.sum(1).double()
        size = size.masked_fill(size == 0, torch.nan)
        found = {name: torch.zeros(len(size), dtype=torch.float64) for name in ("recovered", "right", "wrong")}
        labelled = "record_labels" in truth and bool((self.labels >= 0).any())
        for v, count in enumerate(self.count.tolist()):
            own = [row.numpy().tobytes() for row in truth["record_hash"][v, real[v]]]
            hashes = record_hashes(self.records[v, :count], truth["record_salt"][v], grid_of(truth, v))
            guesses = [row.numpy().tobytes() for row in hashes]
            left = Counter(own) & Counter(guesses)
            found["recovered"][v] = left.total()
            hits = []
            for hashed in own:
                hits.append(left[hashed] > 0)
                left[hashed] -= 1
            exact.append(torch.tensor(hits, dtype=torch.bool))
            sure = Counter(hashed for hashed, certain in zip(guesses, self.certified[v], strict=False) if certain)
            found["wrong"][v] = (sure - Counter(own)).total()
            if labelled:
                true = zip(own, truth["record_labels"][v, real[v]].tolist(), strict=True)
                said = zip(guesses, self.labels[v, :count].tolist(), strict=True)
                found["right"][v] = (Counter(true) & Counter(said)).total()
        metrics = {
            "recovered": found["recovered"] / size,
            "certified": self.certified.sum(1) / size,
            "false-certified": found["wrong"],
        }
        if labelled:
            recovered = found["recovered"]
            metrics["label-accuracy"] = found["right"] / recovered.masked_fill(recovered == 0, torch.nan)
        return metrics, exact


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
    count = torch.tensor([len(own) for own in records], dtype=torch.int64)
    classes = [torch.full((len(own),), -1) for own in records] if labels is None else labels
    sure = [torch.zeros(len(own), dtype=torch.bool) for own in records] if certified is None else certified
    return ReconstructionEstimate(
        records=pad_sequence(list(records), batch_first=True),
        labels=pad_sequence([own.long() for own in classes], batch_first=True, padding_value=-1),
        certified=pad_sequence(list(sure), batch_first=True),
        count=count,
    )
