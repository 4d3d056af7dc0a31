"""Baselines of reconstruction without a look at the update: the mean auxiliary image, sentences, rows of a table."""

from dataclasses import dataclass

import torch

from fedleak.attacks.re_identification.simulated import FEATURES
from fedleak.attacks.reconstruction.estimates import ReconstructionAttack, ReconstructionEstimate, reconstruction
from fedleak.core.errors import ViewError
from fedleak.core.table_columns import COLUMNS, TableColumns
from fedleak.core.threat_model import ThreatModel
from fedleak.core.view import RoundView


@dataclass(frozen=True, kw_only=True)
class MeanRecord(ReconstructionAttack):
    """Baseline: every training example is guessed to be the mean of the adversary's auxiliary images.

    Its PSNR is what a blurred picture without any leak reaches; identification is at chance.

    Threat model: passive server, which holds auxiliary images and does not look at the update.

    References:
        This project.

    Example:
        >>> import torch
        >>> from fedleak.attacks.reconstruction import MeanRecord
        >>> from fedleak.attacks.reconstruction.toy import toy
        >>> view, truth = toy()
        >>> estimate = MeanRecord()(view, generator=torch.Generator().manual_seed(0))
        >>> round(float(estimate.score(view, truth).metrics["psnr"].mean()), 2)
        14.99
    """

    name = "mean-image"
    baseline = True
    threat_model = ThreatModel(
        sees="how many examples the client reports",
        knows="auxiliary images of the same kind",
        needs=("auxiliary:images",),
    )

    def run(self, view: RoundView, *, generator: torch.Generator) -> ReconstructionEstimate:
        mean = view.auxiliary["images"].float().mean(0)
        return reconstruction([mean.expand(int(count), *mean.shape) for count in view.example_counts])


@dataclass(frozen=True, kw_only=True)
class MajorityRow(ReconstructionAttack):
    """Baseline: every row of a table is guessed to have the most common value of each column of the adversary's rows.

    Threat model: passive server, which holds rows of the table and does not look at the update.

    References:
        This project.

    Example:
        >>> import torch
        >>> from fedleak.attacks.reconstruction import MajorityRow
        >>> from fedleak.attacks.reconstruction.toy import toy
        >>> view, truth = toy("table")
        >>> estimate = MajorityRow()(view, generator=torch.Generator().manual_seed(0))
        >>> round(float(estimate.score(view, truth).metrics["categories"].mean()), 3)
        0.325
    """

    name = "majority-row"
    baseline = True
    threat_model = ThreatModel(
        sees="how many examples the client reports",
        knows="the table's columns and rows of other people",
        needs=("auxiliary:images", f"auxiliary:{COLUMNS}"),
    )

    def run(self, view: RoundView, *, generator: torch.Generator) -> ReconstructionEstimate:
        columns, values = _rows_of(view)
        row = columns.encode(values.mode(0).values[None]).float().reshape(view.auxiliary["images"].shape[1:])
        return reconstruction([row.expand(int(count), *row.shape) for count in view.example_counts])


@dataclass(frozen=True, kw_only=True)
class ColumnPrior(ReconstructionAttack):
    """Baseline: each value of each row is drawn from its column in the adversary's rows, independently of all others.

    Threat model: passive server, which holds rows of the table and does not look at the update.

    References:
        [Vero23], section 5, the random baseline.

    Example:
        >>> import torch
        >>> from fedleak.attacks.reconstruction import ColumnPrior
        >>> from fedleak.attacks.reconstruction.toy import toy
        >>> view, truth = toy("table")
        >>> estimate = ColumnPrior()(view, generator=torch.Generator().manual_seed(0))
        >>> round(float(estimate.score(view, truth).metrics["categories"].mean()), 3)
        0.525
    """

    name = "column-prior"
    baseline = True
    threat_model = MajorityRow.threat_model

    def run(self, view: RoundView, *, generator: torch.Generator) -> ReconstructionEstimate:
        columns, values = _rows_of(view)
        records = []
        for count in view.example_counts.tolist():
            # Each value comes from a row of its own, so that columns are independent.
            drawn = torch.randint(len(values), (count, values.shape[1]), generator=generator)
            rows = columns.encode(values.gather(0, drawn)).float()
            records.append(rows.reshape(count, *view.auxiliary["images"].shape[1:]))
        return reconstruction(records)


def _rows_of(view: RoundView) -> tuple[TableColumns, torch.Tensor]:
    """Columns, and the values ``(M, C)`` of the adversary's rows."""
    columns = TableColumns.of(view.auxiliary[COLUMNS])
    rows = view.auxiliary["images"]
    if rows[0].numel() != len(columns.column):
        raise ViewError(f"expected rows of {len(columns.column)} numbers, got {tuple(rows.shape[1:])}")
    return columns, columns.decode(rows)


@dataclass(frozen=True, kw_only=True)
class RandomSentences(ReconstructionAttack):
    """Baseline: sentences drawn at random from the texts that the adversary has, as many as the client reports.

    Its ROUGE is that of any two texts of the same language; its exact sentences are phrases that everybody uses.

    Threat model: passive server, which holds texts of users and does not look at the update.

    References:
        This project.

    Example:
        >>> import torch
        >>> from fedleak.attacks.reconstruction import RandomSentences
        >>> from fedleak.attacks.reconstruction.toy import toy
        >>> view, truth = toy("sentences")
        >>> estimate = RandomSentences()(view, generator=torch.Generator().manual_seed(0))
        >>> round(float(estimate.score(view, truth).metrics["rouge1"].mean()), 2)
        0.08
    """

    name = "random-sentences"
    baseline = True
    threat_model = ThreatModel(
        sees="how many examples the client reports", knows="texts of users", needs=(f"auxiliary:{FEATURES}",)
    )

    def run(self, view: RoundView, *, generator: torch.Generator) -> ReconstructionEstimate:
        texts = view.auxiliary[FEATURES]
        if texts.dim() != 2 or texts.is_floating_point():
            raise ViewError("expected texts as word numbers, got other examples")
        records = []
        for count in view.example_counts.tolist():
            drawn = torch.randint(len(texts), (count,), generator=generator)
            records.append(texts[drawn])
        return reconstruction(records)
