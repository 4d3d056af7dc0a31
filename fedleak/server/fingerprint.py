"""Fingerprints: a feature of its own for each document of a client."""

from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from fedleak.defenses.manipulation_checks import ConstantColumns
from fedleak.server.deviation import Notice
from fedleak.server.feature_manipulation import FeatureManipulation, Model


@dataclass(frozen=True, kw_only=True)
class Fingerprint(FeatureManipulation):
    """Fingerprinting: a feature of its own for each document of a client, all others zero.

    The features are divided among the client's documents; if there are fewer features than documents, several documents
    share a feature and cannot be distinguished.

    Args:
        value: the value of a document's own features.

    References:
        [Pham25], section III.C.1.
    """

    name = "fingerprint"
    does = "gives each document of a client a feature of its own, and zero in all others"
    noticed = (Notice("client", "columns that are constant over a list", (ConstantColumns,)),)
    references = ("Pham25, section III.C.1",)

    value: float = 1.0

    def __post_init__(self) -> None:
        if self.value == 0:
            raise ValueError("expected a value other than 0, got 0, for which all documents are equal")

    def features(self, model: Model, features: Tensor, mask: Tensor, *, generator: Generator) -> Tensor:
        width = features.shape[-1]
        # Each document's number among all of its client, and how many these are.
        number = (mask.flatten(1).cumsum(1) - 1).reshape(mask.shape)[..., None]
        documents = mask.flatten(1).sum(1).clamp(min=1)
        documents = documents.reshape(-1, 1, 1, 1)
        # Columns are dealt to documents in turn, or documents to columns where there are fewer columns.
        column = torch.arange(width)
        column_of_document = column % documents == number
        document_of_column = column == number % width
        is_documents_column = torch.where(documents <= width, column_of_document, document_of_column)
        return is_documents_column * self.value * mask[..., None]
