"""Client-side checks for manipulated features (RAIFLE, section VII.D.2): statistics, compared with honest clients'."""

import abc
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, final

import torch
from torch import Tensor

from fedleak import defenses
from fedleak.core.class_paths import class_at, named_classes
from fedleak.core.errors import require


@dataclass(frozen=True, kw_only=True)
class Received:
    """What some clients have received in a round, before any click.

    Attributes:
        features: ``(C, Q, L, F)`` as sent, in displayed order, zero where padded.
        mask: ``(C, Q, L)`` True for documents.
        model: the model that each client was sent with them, ``(C, *shape)`` each.
    """

    features: Tensor
    mask: Tensor
    model: Mapping[str, Tensor]

    def __post_init__(self) -> None:
        require(
            self.features.dim() == 4 and self.mask.shape == self.features.shape[:3],
            "features (C, Q, L, F) and mask (C, Q, L)",
            f"{tuple(self.features.shape)} and {tuple(self.mask.shape)}",
            "Arrange a recording's view with fedleak.client.ranked_lists.ranked_lists.",
        )

    def of(self, clients: Tensor) -> "Received":
        """What the given clients received; `clients` are positions, or a mask ``(C,)``."""
        model = {name: value[clients] for name, value in self.model.items()}
        return Received(features=self.features[clients], mask=self.mask[clients], model=model)

    def documents(self) -> Tensor:
        """``(M, F)`` documents of all clients."""
        return self.features[self.mask]

    def columns(self) -> tuple[Tensor, Tensor]:
        """Values by column, ``(C, F, Q L)``, and the mask of the documents, ``(C, 1, Q L)``."""
        values = self.features.flatten(1, 2).transpose(1, 2).contiguous()
        return values, self.mask.flatten(1)[:, None]

    def pooled(self) -> tuple[Tensor, Tensor]:
        """Features and mask of all lists as those of a single client."""
        return self.features.flatten(0, 1)[None], self.mask.flatten(0, 1)[None]


class Check(abc.ABC):
    """Base class of checks: a statistic that is larger if features look less like those of a reference.

    The reference is a public sample of honest features: what peers received, or the client itself in earlier rounds. A
    server that manipulates what everyone receives, from the first round on, also manipulates the reference.

    Attributes:
        name: the name in the results.

    References:
        [Pham25], section VII.D.2.

    Example:
        >>> import torch
        >>> from fedleak import Check
        >>> from fedleak.defenses.manipulation_checks import Received
        >>> class LargestValue(Check):
        ...     '''The largest value, relative to the reference's.'''
        ...
        ...     name = "largest-value"
        ...
        ...     def statistic(self, received, reference):
        ...         return received.features.abs().flatten(1).amax(1) / reference.documents().abs().max()
        >>> mask = torch.ones(1, 1, 2, dtype=torch.bool)
        >>> honest = Received(features=torch.ones(1, 1, 2, 3), mask=mask, model={})
        >>> LargestValue()(Received(features=5 * honest.features, mask=mask, model={}), honest)
        tensor([5.], dtype=torch.float64)
    """

    name: ClassVar[str]

    @final
    def __call__(self, received: Received, reference: Received) -> Tensor:
        """The statistic of each client.

        Args:
            received: what the clients under test received.
            reference: what honest clients received, with the same model.

        Returns:
            ``(C,)`` float64, higher is more suspicious; the smallest number for a client without documents.

        Raises:
            InputError: the reference is empty or has other features.
        """
        documents = reference.documents()
        features = received.features.shape[-1]
        require(
            len(documents) and documents.shape[1] == features,
            f"a reference of documents with {features} features",
            f"{len(documents)} documents with {documents.shape[1]}",
            "Give what honest clients of the same training received.",
        )
        statistic = self.statistic(received, reference).double()
        return statistic.where(received.mask.flatten(1).any(1), torch.finfo(torch.float64).min)

    @abc.abstractmethod
    def statistic(self, received: Received, reference: Received) -> Tensor:
        """The statistic itself, ``(C,)``; `__call__` has checked the reference."""


class ConstantColumns(Check):
    """Mean excess over the reference of the share of lists with a constant column; detects fingerprinting."""

    name = "constant-columns"

    def statistic(self, received: Received, reference: Received) -> Tensor:
        usual = constant_share(*reference.pooled())
        return (constant_share(received.features, received.mask) - usual).clamp(min=0).mean(1)


def constant_share(features: Tensor, mask: Tensor) -> Tensor:
    """``(C, F)`` share of each client's lists in which a column is constant, for ``(C, Q, L, F)`` and ``(C, Q, L)``."""
    is_document = mask[..., None]
    highest = features.masked_fill(~is_document, -torch.inf).amax(2)
    lowest = features.masked_fill(~is_document, torch.inf).amin(2)
    is_list = mask.any(2)[..., None]  # padding has lists without documents too
    is_constant = (highest == lowest) & is_list
    return is_constant.double().sum(1) / is_list.sum(1).clamp(min=1)


class Entropy(Check):
    """Mean absolute difference, over the columns, of a client's Shannon entropy and its peers' mean, in nats.

    The entropy of a small sample is biased, so it is compared with that of other single clients.

    Args:
        bins: number of bins between the reference's minimum and maximum of a column; there is one more on either side.
    """

    name = "entropy"

    def __init__(self, *, bins: int = 10) -> None:
        if bins < 1:
            raise ValueError(f"expected bins of at least 1, got {bins}")
        self.bins = bins

    def statistic(self, received: Received, reference: Received) -> Tensor:
        documents = reference.documents()
        low = documents.amin(0)
        high = documents.amax(0)
        # The mean over the peers that received documents.
        has_documents = reference.mask.flatten(1).any(1)
        usual = column_entropy(reference, low, high, self.bins)[has_documents].mean(0)
        return (column_entropy(received, low, high, self.bins) - usual).abs().mean(1)


def column_entropy(received: Received, low: Tensor, high: Tensor, bins: int) -> Tensor:
    """``(C, F)`` Shannon entropy in nats of the histogram of each client's columns.

    The bins between ``low (F,)`` and ``high (F,)`` have equal widths and include both ends; values beyond either end
    have a bin of their own.
    """
    values, is_document = received.columns()
    low = low[:, None]
    high = high[:, None]
    width = (high - low).clamp(min=torch.finfo(values.dtype).tiny)
    # Bin 0 is below the range, bins 1 to `bins` are in it, the last one is above.
    inside = ((values - low) / width * bins).clamp(0, bins - 1).long() + 1
    bin_of_value = inside.where(values >= low, 0).where(values <= high, bins + 1)
    counts = values.new_zeros(*values.shape[:2], bins + 2, dtype=torch.float64)
    counts.scatter_add_(2, bin_of_value, is_document.double().expand(bin_of_value.shape))
    # -p ln p of each bin, 0 for an empty one.
    terms: Tensor = torch.special.entr(counts / is_document.sum(2, keepdim=True).clamp(min=1))
    return terms.sum(2)


class Distribution(Check):
    """Two-sample Kolmogorov-Smirnov statistics of the columns, against the documents of the reference.

    They are scaled by ``sqrt(n m / (n + m))`` for comparability between clients with n documents. Documents of a list
    are dependent, so the threshold is calibrated instead of computing p-values.

    Args:
        combined: ``mean`` over the columns, or the ``largest`` statistic.
    """

    name = "distribution"

    def __init__(self, *, combined: Literal["mean", "largest"] = "mean") -> None:
        if combined not in ("mean", "largest"):
            raise ValueError(f"expected combined 'mean' or 'largest', got {combined!r}")
        self.combined = combined

    def statistic(self, received: Received, reference: Received) -> Tensor:
        documents = reference.documents()
        count = received.mask.flatten(1).sum(1).double()
        scale = (count * len(documents) / (count + len(documents))).sqrt()
        distance = kolmogorov_smirnov(received, documents) * scale[:, None]
        return distance.mean(1) if self.combined == "mean" else distance.amax(1)


def kolmogorov_smirnov(received: Received, documents: Tensor) -> Tensor:
    """``(C, F)`` largest distance of the empirical distributions of each client's column and of ``documents (M, F)``.

    Between two of the client's values its own distribution is flat and the other one increases, so the maximum is at
    one of the client's values, or just before one.

    It is the statistic of `scipy.stats.ks_2samp`, which also computes a p-value for every client and column, seconds
    for 50 clients with 46 features.
    """
    values, mask = received.columns()
    count = mask.sum(2, keepdim=True).clamp(min=1)
    client_values = values.masked_fill(~mask, torch.inf).sort(2).values.contiguous()  # (C, F, N)
    by_column = client_values.transpose(0, 1).contiguous()
    peer_values = documents.T.sort(1).values.contiguous()  # (F, M)
    distances = []
    # Both distribution functions at each value of the client, and just before it.
    for is_at_value in (True, False):
        below = torch.searchsorted(client_values, client_values, right=is_at_value) / count.double()
        peers_below = torch.searchsorted(peer_values, by_column.flatten(1), right=is_at_value)
        peers_below = peers_below.double() / len(documents)
        distances.append((below - peers_below.reshape(by_column.shape).transpose(0, 1)).abs())
    # Padding is sorted to the end.
    is_document = torch.arange(client_values.shape[2]) < mask.sum(2, keepdim=True)
    return torch.stack(distances).amax(0).masked_fill(~is_document, 0).amax(2)


class ValueRange(Check):
    """Share of a client's values outside the reference's range of their column, in [0, 1]."""

    name = "range"

    def statistic(self, received: Received, reference: Received) -> Tensor:
        documents = reference.documents()
        is_outside = (received.features < documents.amin(0)) | (received.features > documents.amax(0))
        is_outside = is_outside & received.mask[..., None]
        values = received.mask.flatten(1).sum(1).clamp(min=1) * documents.shape[1]
        return is_outside.flatten(1).sum(1).double() / values


def checks() -> dict[str, type[Check]]:
    """Every check that a module of this package defines, by its name."""
    return named_classes(defenses, Check)


def check_named(name: str) -> type[Check]:
    """The check of a name, or at the path of a class."""
    if "." in name:
        return class_at(name, Check)
    by_name = checks()
    expected = f"a check among {', '.join(by_name)}, or the path of a class"
    require(name in by_name, expected, repr(name), "Correct `checks`.")
    return by_name[name]
