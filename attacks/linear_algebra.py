"""Linear algebra that attacks of several questions share: spans, whitening, shrinkage.

Vectors are rows. A *span* is the space of all sums of multiples of some vectors. To *whiten* vectors is to multiply
them by the inverse square root of a covariance, after which their noise is the same in all directions. To *shrink* a
covariance is to draw its eigenvalues towards their mean, because few vectors make the small ones too small.
"""

import torch
from torch import Tensor

_LEAST_EIGENVALUE = 1e-10
"""Share of the largest eigenvalue of a Gram matrix below which a direction is considered rounding."""
_LEAST_VARIANCE = 1e-14
"""Variance of every direction where errors and noise are zero."""
_COLUMNS_AT_ONCE = 2**15
"""Columns that are converted to float64 together: 256 KiB for each vector."""
_TINY = torch.finfo(torch.float64).tiny
"""Smallest normal number, which keeps divisions by zero finite."""


def inner_products(left: Tensor, right: Tensor) -> Tensor:
    """``(A, B)`` inner products in float64 of vectors ``(A, D)`` and ``(B, D)``.

    They are summed block by block, so that no float64 copy of all vectors is made.
    """
    total = torch.zeros(len(left), len(right), dtype=torch.float64)
    for start in range(0, left.shape[1], _COLUMNS_AT_ONCE):
        block = slice(start, start + _COLUMNS_AT_ONCE)
        total += left[:, block].double() @ right[:, block].double().T
    return total


def orthonormal_combinations(gram: Tensor, *, least: float = _LEAST_EIGENVALUE) -> Tensor:
    """``(P, R)`` weights by which P vectors with a Gram matrix ``(P, P)`` add up to an orthonormal basis of their span.

    A vector whose inner products with the P vectors are ``c (P,)`` has the coordinates ``c @ weights`` in that basis.

    Args:
        gram: inner products of the vectors.
        least: share of the largest eigenvalue below which a direction is considered rounding.

    Example:
        >>> vectors = torch.tensor([[3.0, 0.0, 0.0], [6.0, 0.0, 0.0], [0.0, 0.5, 0.0]]).double()
        >>> weights = orthonormal_combinations(vectors @ vectors.T)
        >>> weights.shape  # the second vector adds no direction
        torch.Size([3, 2])
        >>> (weights.T @ vectors).norm(dim=1)
        tensor([1., 1.], dtype=torch.float64)
    """
    # G = U diag(l) U': the combination U_r / sqrt(l_r) has length 1, because U_r' G U_r = l_r.
    eigenvalues, eigenvectors = torch.linalg.eigh(gram)
    is_direction = eigenvalues > least * eigenvalues[-1].clamp(min=_TINY)
    weights: Tensor = eigenvectors[:, is_direction] / eigenvalues[is_direction].sqrt()
    return weights


def in_span(training: Tensor, vectors: Tensor) -> tuple[Tensor, Tensor]:
    """Coordinates ``(P, R)`` and ``(V, R)`` in an orthonormal basis of the span of the training vectors, R its rank.

    Linear machines, nearest neighbours and the first layer of a network depend on a vector only through its inner
    products with the training vectors ``(P, D)``, which are preserved; what other vectors ``(V, D)`` have outside of
    the span is dropped.

    Example:
        >>> training, others = torch.tensor([[3.0, 0.0, 0.0, 4.0]]), torch.tensor([[0.0, 7.0, 0.0, 2.0]])
        >>> [coordinates.abs() for coordinates in in_span(training, others)]
        [tensor([[5.]]), tensor([[1.6000]])]
    """
    products = inner_products(training, training)
    weights = orthonormal_combinations(products)
    training_coordinates = products @ weights
    other_coordinates = inner_products(vectors, training) @ weights
    return training_coordinates.to(training), other_coordinates.to(training)


def triangle(matrix: Tensor) -> Tensor:
    """At most D rows with the same row space and the same singular values as the rows of a matrix ``(M, D)``."""
    if matrix.shape[0] <= matrix.shape[1]:
        return matrix
    # M = Q R with orthonormal columns of Q, so M'M = R'R, which fixes row space and singular values.
    rows: Tensor = torch.linalg.qr(matrix, mode="r")[1]
    return rows


def row_space(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Singular values ``(R,)`` of a matrix ``(M, D)``, falling, and an orthonormal basis ``(R, D)`` of its row space.

    R is the smaller of M and D; those of the basis whose singular values are noise are for the caller to leave out.

    Example:
        >>> values, basis = row_space(torch.tensor([[3.0, 4.0], [-0.4, 0.3], [6.0, 8.0]]).double())
        >>> values
        tensor([11.1803,  0.5000], dtype=torch.float64)
        >>> basis[0].abs()
        tensor([0.6000, 0.8000], dtype=torch.float64)
    """
    _, values, basis = torch.linalg.svd(triangle(matrix), full_matrices=False)
    return values, basis


def along_and_outside(vectors: Tensor, basis: Tensor) -> tuple[Tensor, Tensor]:
    """Coordinates ``(A, R)`` of vectors ``(A, D)`` in an orthonormal basis ``(R, D)``, and the rest ``(A, D)``.

    A vector lies in the span of the basis if its rest is zero.

    Example:
        >>> along, outside = along_and_outside(torch.tensor([[5.0, 2.0]]), torch.tensor([[1.0, 0.0]]))
        >>> along, outside
        (tensor([[5.]]), tensor([[0., 2.]]))
    """
    along = vectors @ basis.T
    return along, vectors - along @ basis


def covariance_within(vectors: Tensor, labels: Tensor) -> Tensor:
    """``(R, R)`` covariance in float64 of vectors ``(S, R)`` around the mean of those with the same label ``(S,)``.

    Example:
        >>> vectors, labels = torch.tensor([[1.0], [3.0], [9.0]]), torch.tensor([0, 0, 4])
        >>> covariance_within(vectors, labels)  # 1 + 1 + 0 over 3
        tensor([[0.6667]], dtype=torch.float64)
    """
    _, group, counts = torch.unique(labels, return_inverse=True, return_counts=True)
    sums = torch.zeros(len(counts), vectors.shape[1], dtype=torch.float64).index_add_(0, group, vectors.double())
    means = sums / counts[:, None]
    rest = vectors.double() - means[group]
    covariance: Tensor = rest.T @ rest / len(rest)
    return covariance


def shrunk_eigenvalues(covariance: Tensor, *, factor: float, added: float) -> tuple[Tensor, Tensor]:
    """Eigenvalues ``(R,)`` of a covariance ``(R, R)`` after shrinkage, and its eigenvectors ``(R, R)``, as columns.

    An eigenvalue becomes `factor` times itself plus `added` times the mean of all, so that none is zero: with
    ``factor=1 - s`` and ``added=s`` this is shrinkage by s, and with ``factor=1`` a floor.

    Example:
        >>> shrunk_eigenvalues(torch.diag(torch.tensor([0.0, 4.0])), factor=0.5, added=0.5)[0]
        tensor([1., 3.])
    """
    eigenvalues, eigenvectors = torch.linalg.eigh(covariance)
    mean = eigenvalues.mean().clamp(min=_TINY)
    return factor * eigenvalues.clamp(min=0) + added * mean, eigenvectors


def whitening(covariance: Tensor, *, factor: float, added: float) -> Tensor:
    """``(R, R)`` inverse square root of a covariance after shrinkage, see `shrunk_eigenvalues`.

    Example:
        >>> whitening(torch.diag(torch.tensor([0.0, 4.0])), factor=0.75, added=0.5)  # of 1 and 4
        tensor([[1.0000, 0.0000],
                [0.0000, 0.5000]])
    """
    eigenvalues, eigenvectors = shrunk_eigenvalues(covariance, factor=factor, added=added)
    return (eigenvectors * eigenvalues.rsqrt()) @ eigenvectors.T


class WhiteningOfFew:
    """Whitening by the covariance of few errors of many numbers, which is never formed.

    The shrunk covariance of R errors of P numbers is a multiple of the identity but for R directions, so that a product
    with its inverse square root takes ``2 R P`` operations.

    Args:
        errors: ``(V, R, P)`` errors with a mean of zero, for each of V clients.
        shrinkage: share of the covariance that is left out.
        floor: what is added to the variance of every direction, as a multiple of the mean variance.
        noise: standard deviation of further noise in every direction.

    Example:
        >>> whiten = WhiteningOfFew(torch.tensor([[[2.0, 0.0, 0.0]]]), shrinkage=0.0, floor=0.0, noise=1.0)
        >>> whiten(torch.tensor([[[5.0, 5.0, 5.0]]]))  # over the root of 4 + 1 in the first direction
        tensor([[[2.2361, 5.0000, 5.0000]]])
    """

    def __init__(self, errors: Tensor, *, shrinkage: float, floor: float, noise: float) -> None:
        count, width = errors.shape[1:]
        _, values, self.directions = torch.linalg.svd(errors, full_matrices=False)
        # Variance of the shrunk covariance along each of the R directions of the errors.
        variances = (1 - shrinkage) * values.square() / count
        # The same variance in all P directions: the floor, declared noise, and a little so that nothing is zero.
        mean_variance_floor = floor * variances.sum(1, keepdim=True) / width
        everywhere = mean_variance_floor + noise**2 + _LEAST_VARIANCE
        # Inverse root of the covariance: `scale` times the identity, plus an excess along the R directions.
        self.scale = everywhere.rsqrt()
        self.excess = (variances + everywhere).rsqrt() - self.scale

    def __call__(self, values: Tensor) -> Tensor:
        """Whitens ``(V, M, P)``."""
        along = (values @ self.directions.transpose(1, 2)) * self.excess[:, None]
        whitened: Tensor = values * self.scale[..., None] + along @ self.directions
        return whitened


def ledoit_wolf_of_gram(gram: Tensor, width: int) -> float:
    """Shrinkage of Ledoit and Wolf for n centred rows of length `width`, from their inner products ``(n, n)``.

    It is `sklearn.covariance.ledoit_wolf_shrinkage` of the rows, which takes ``n width^2`` operations, too many for
    rows as long as an update. All its sums are sums of inner products.

    References:
        [Ledoit04].

    Example:
        >>> rows = torch.tensor([[4.0, 0.0, 1.0], [-4.0, 1.0, 0.0], [4.0, 0.0, -1.0], [-4.0, -1.0, 0.0]])
        >>> round(ledoit_wolf_of_gram(rows @ rows.T, 3), 4)
        0.0507
    """
    count, norms = len(gram), gram.diagonal()
    # |S|^2 / D, the squared norm of the covariance S per row: |X'X|^2 = |XX'|^2, so inner products are enough.
    squared = float(gram.square().sum()) / count**2 / width
    # How far S is from the multiple of the identity with the same trace.
    spread = squared - (float(norms.mean()) / width) ** 2
    # Sampling error of S: how far x x' of single rows is from their mean.
    error = (float(norms.square().mean()) / width - squared) / count
    if spread <= 0:
        return 1.0
    # The share of the spread that is sampling error, in [0, 1].
    return min(max(error, 0.0), spread) / spread
