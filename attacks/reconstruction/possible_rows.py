"""Rows of a table whose possible rows can be listed: how often each occurs, certified by the whole update."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fedleak.attacks.linear_algebra import along_and_outside, row_space
from fedleak.attacks.reconstruction.peeled_rows import DistinctRows, RowChanges
from fedleak.attacks.reconstruction.record_supports import FoundRecords
from fedleak.attacks.reconstruction.row_certificate import certain_copies, certified_rows, further_direction
from fedleak.core.largest_remainders import largest_remainders

MOST_POSSIBLE = 2**23
"""Largest number of possible rows, times neurons: 64 MiB for each class."""
ROUNDING = 16 * torch.finfo(torch.float32).eps
"""Relative error of a step in single precision."""
_APART = 4.0
"""Times the rounding of the update by which another set of rows must miss it, for a certificate."""
_RIDGE = 1e-13
"""Share of the mean squared length that keeps the system of nearly dependent rows solvable."""
_CHANGED = 1e-3
"""Change of the number of records by an exchange from which on the exchange is none."""
_VIOLATED = 0.1
"""Share of the rounding below which a scalar product with what is left is 0."""
_MOST_PASSES = 80
_MOST_WORK = 10**11
"""Sum of the cubed numbers of chosen rows over all factorisations at which least squares stops: about a minute, where
values outside of the table's description, such as -99 for a missing one, fit no possible rows."""
_MOST_CHOSEN = 3
"""Times as many rows as the client has records at which least squares stops: it fits the rounding from there on."""
_EXCHANGES = 24
"""Largest number of records that are exchanged one by one, to repair what was rounded wrong."""
_MOST_EXCHANGES = 64
"""Largest number of records that are exchanged, added or removed one by one at a known rate."""
_LEAST_PROGRESS = 0.02
"""Share of the squared misfit by which each of these must lower it."""
_GROWN = 1.2
"""Times as many rows chosen as at the last attempt at which the numbers of a sum are repaired again."""
_CHEAP = 2**14
"""Number of scalar products of chosen and possible rows up to which numbers of a sum are repaired at every pass."""
_NEAR = 2.0
"""Misfit, in changes by the row of the largest, up to which they are repaired otherwise."""
_MANY = 1.5
"""Times the client's number of rows from which on the update is taken for that of a sum."""
_MOST_COPIES = 256
"""Largest number of copies of a further row that the certificate of a sum excludes one by one."""
_COARSE = 0.01
"""Share of an update of several steps below which a scalar product with what is left is 0, as its model is another."""


@dataclass(frozen=True)
class _Atoms:
    """What each possible row of each class, P in all, changes at the layer: ``c [x, 1]^T``.

    Attributes:
        points: ``(M, E + 1)`` what the layer gets of each possible row, itself or embedded, with a 1 appended.
        changes: ``(P, N)`` changes c of the bias, by row and then by class.
        place: ``(P,)`` row of each.
        label: ``(P,)`` class of each.
    """

    points: Tensor
    changes: Tensor
    place: Tensor
    label: Tensor

    def products(self, chosen: Tensor) -> Tensor:
        """``(P, m)`` scalar products with the chosen ``(m,)``."""
        inner = self.points @ self.points[self.place[chosen]].T
        return (self.changes @ self.changes[chosen].T).mul_(inner[self.place])

    def along(self, rows: Tensor) -> Tensor:
        """``(P,)`` scalar products with ``rows (N, D + 1)``."""
        return ((self.changes @ rows) * self.points[self.place]).sum(1)

    def matrices(self, chosen: Tensor) -> Tensor:
        """``(m, N * (D + 1))`` changes of weight and bias."""
        points = self.points[self.place[chosen]]
        return (self.changes[chosen][:, :, None] * points[:, None, :]).flatten(1)

    @functools.cached_property
    def squares(self) -> Tensor:
        """``(P,)`` squared lengths."""
        return self.changes.square().sum(1) * self.points.square().sum(1)[self.place]


def search_possible(
    rows: Tensor,
    count: int,
    changes: RowChanges,
    *,
    floor: float,
    precision: float,
    one_step: bool,
    rate: float | None = None,
) -> FoundRecords:
    """The rows of a client, as many as it reports, among all possible rows of its table.

    Of a secure sum whose clients report a number each, the number of all rows is unknown, but the rate of one row is
    known: each weight of least squares over the rate is about a number of copies. In single precision many are off by
    one, and so is their sum; exchanges, additions and removals of single rows repair them until the step is the update.

    After one step, ``-rows = rate * sum_i n_i c_i [x_i, 1]^T`` for the possible rows x_i of each class with their
    changes c_i of the bias at the global model, and numbers n_i of copies that are whole and not negative. Least
    squares without negative numbers gives them all at once, for any number of records and sums of clients; their sum
    is the number of records, which gives the rate.

    All are certain if the step made again is the update up to its rounding, and no other possible row may replace any:
    with s the smallest singular value of the changes by the rows found, and d the least distance of another possible
    row's from their span, other numbers of the rows found miss the update by at least ``rate * s``, and those with one
    further row by ``rate * d``. Both must be four times the rounding, but for a further row that is a sum of rows found
    with weights whose sum is not 1: such an exchange changes the number of records. (The changes by one row of all
    classes, weighted by their probabilities, add up to 0.) In a sum, whose number of records is inferred, such an
    exchange is excluded only if no number of copies of the further row, up to twice as many records in all, leaves
    whole numbers of the others, none negative: a rest f at a row whose change has distance h from the span of the
    others' misses the update by ``rate * f * h`` at least, again four times the rounding. That several further rows
    cancel each other to rounding is not excluded, as it would take a coincidence of all numbers of the update.

    The rate is that of the reported number of examples, or fits best. So the numbers of copies are known up to a common
    factor only, and of n_i copies those are certain that remain after it is taken out, see `certain_copies`.

    After several steps the changes are those of other models, so the numbers are near the true ones at most, and are
    certain for no row. But as ``weight = C^T X`` holds with any C, all rows are in the row space of the update: if the
    possible rows in it are no more than its rank, each is a record, and certain once. Two rows on both sides of a
    possible one, whose changes of the bias are the same to rounding, would hide in it: the dimension that they add
    (`further_direction`) must have a singular value of four times the rounding.

    Args:
        rows: ``(N, E + 1)`` float64 change of weight and bias.
        count: number of the client's records.
        changes: what each possible row changes.
        floor: length of the rounding of the rows.
        precision: relative precision of the recorded numbers.
        one_step: whether the clients made one step at that model.
        rate: what a row's change is multiplied by in the update of a client with `count` rows; None if unknown.

    References:
        Lawson and Hanson, "Solving Least Squares Problems", 1974, chapter 23. This project, for the certificates.
    """
    values = changes.columns.every()
    points = changes.points(values)
    inside, rank = _in_span(points, rows, floor)
    options: dict[str, Any] = {"floor": floor, "precision": precision, "one_step": one_step, "rate": rate}
    records = _solved(rows, count, points[inside], values[inside], changes, rank=rank, **options)
    if bool(records.certain.any()) or len(inside) == len(points):
        return records
    if len(inside) and not one_step:
        return records
    return _solved(rows, count, points, values, changes, rank=0, **options)  # rounding may hide directions


def _solved(
    rows: Tensor,
    count: int,
    points: Tensor,
    values: Tensor,
    changes: RowChanges,
    *,
    floor: float,
    precision: float,
    one_step: bool,
    rank: int,
    rate: float | None,
) -> FoundRecords:
    """Rows of a client among those of ``values (M, C)``; all are its records if there are as many as the rank.

    The layer gets their ``points (M, E + 1)``.
    """
    records = changes.records(values)
    if not len(points):
        return FoundRecords(records, torch.zeros(0, dtype=torch.int64), torch.zeros(0, dtype=torch.bool))
    biases = changes.biases(values)
    kinds = biases.shape[1]
    place, label = (
        each.flatten() for each in torch.meshgrid(torch.arange(len(points)), torch.arange(kinds), indexing="ij")
    )
    atoms = _Atoms(points, biases.flatten(0, 1), place, label)

    exact = list[tuple[Tensor, Tensor]]()
    failed_at = 0
    options: dict[str, Any] = {"count": count, "rate": rate, "floor": floor}

    def is_exact(chosen: Tensor, weights: Tensor, *, at_rate: bool) -> bool:
        repaired = _numbers(rows, atoms, chosen, weights, at_rate=at_rate, **options)
        exact.extend([] if repaired is None else [repaired])
        return repaired is not None

    def is_enough(chosen: Tensor, weights: Tensor) -> bool:
        nonlocal failed_at
        total = _total(weights, count, rate)
        many = one_step and total >= _MANY * count
        grown = many and len(chosen) >= _GROWN * failed_at and _are_near(rows, atoms, chosen, weights, count, total)
        failed_at = len(chosen) if grown else failed_at
        tried = one_step and (grown or not many or len(chosen) * len(place) <= _CHEAP)
        return (tried and is_exact(chosen, weights, at_rate=grown)) or len(chosen) > _MOST_CHOSEN * total

    solved = nonnegative_least_squares(
        atoms.products,
        atoms.along(-rows),
        atoms.squares,
        floor=floor if one_step else _COARSE * float(rows.norm()),
        is_enough=is_enough,
    )
    if one_step and not exact and len(solved[0]) != failed_at:
        is_exact(*solved, at_rate=_total(solved[1], count, rate) >= _MANY * count)
    chosen, copies = exact[0] if exact else _kept(solved[0], _copies(solved[1], count))
    distinct = DistinctRows(values[atoms.place[chosen]], atoms.label[chosen], copies)
    if one_step and _is_certain(rows, atoms, chosen, copies, floor, is_sum=int(copies.sum()) != count):
        apart = certified_rows(
            rows, distinct, changes, floor=floor, precision=precision, declared_rate=rate, only_numbers=True
        )
        certain = certain_copies(copies) & apart.repeat_interleave(copies)
    elif len(points) == rank == len(torch.unique(atoms.place[chosen])):
        row_rate = _misfit(rows, atoms, chosen, copies)[1]
        visible = [row_rate * further_direction(distinct, number, changes) for number in range(len(chosen))]
        apart = torch.tensor(visible, dtype=torch.float64) >= _APART * floor
        certain = _first_copies(atoms.place[chosen], copies) & apart.repeat_interleave(copies)
    else:
        certain = torch.zeros(int(copies.sum()), dtype=torch.bool)
    copied = chosen.repeat_interleave(copies)
    return FoundRecords(records[atoms.place[copied]], atoms.label[copied], certain)


def _first_copies(place: Tensor, copies: Tensor) -> Tensor:
    """``(sum,)`` bool, the first of the copies of each possible row, in whatever classes they are."""
    owner = place.repeat_interleave(copies)
    is_same = owner[:, None] == owner
    return ~is_same.tril(-1).any(1)


def _in_span(points: Tensor, rows: Tensor, floor: float) -> tuple[Tensor, int]:
    """Numbers of the points that are in the row space of the rows up to rounding, and its dimension."""
    values, basis = row_space(rows)
    rank = int((values > floor).sum())
    if rank == 0:
        return torch.arange(0), 0
    along, outside = along_and_outside(points, basis[:rank])
    # The rounding turns the directions of small singular values most.
    allowed = _APART * floor * (along / values[:rank]).norm(dim=1) + 1e-6
    return (outside.norm(dim=1) <= allowed).nonzero().flatten(), rank


def _misfit(rows: Tensor, atoms: _Atoms, chosen: Tensor, copies: Tensor) -> tuple[float, float]:
    """Length of what a step with copies of rows leaves of the update, and its rate, which fits best."""
    made = copies.double() @ atoms.matrices(chosen)
    rate = float(-(made @ rows.flatten()) / made.square().sum().clamp(min=1e-300))
    return float((rows.flatten() + rate * made).norm()) if rate > 0 else float("inf"), rate


def _total(weights: Tensor, count: int, rate: float | None) -> int:
    """Number of all rows, of a sum of clients too, as the weights give it: not exact in single precision."""
    return count if rate is None else max(count, round(float(weights.sum()) / rate))


def _kept(chosen: Tensor, copies: Tensor) -> tuple[Tensor, Tensor]:
    """Those with copies."""
    return chosen[copies > 0], copies[copies > 0]


def _are_near(rows: Tensor, atoms: _Atoms, chosen: Tensor, weights: Tensor, *totals: int) -> bool:
    """Whether the numbers of copies of one of the totals may be repaired, by the length that they leave."""
    longest = float(atoms.squares.max().sqrt())
    tried = (_misfit(rows, atoms, *_kept(chosen, _copies(weights, total))) for total in totals)
    return any(misfit <= _NEAR * rate * longest for misfit, rate in tried)


def _numbers(
    rows: Tensor,
    atoms: _Atoms,
    chosen: Tensor,
    weights: Tensor,
    *,
    count: int,
    rate: float | None,
    floor: float,
    at_rate: bool,
) -> tuple[Tensor, Tensor] | None:
    """Numbers of rows of which the step is the update: in all the client's or the inferred, or `at_rate` any; or None.

    The client's number comes first, as one may be given for a whole sum.
    """
    for total in dict.fromkeys([count, _total(weights, count, rate)]):
        repaired = _repaired(rows, atoms, *_kept(chosen, _copies(weights, total)), floor)
        if repaired is not None:
            return repaired
    return _repaired_sum(rows, atoms, chosen, weights, rate, floor) if at_rate and rate is not None else None


def _repaired(
    rows: Tensor, atoms: _Atoms, chosen: Tensor, copies: Tensor, floor: float
) -> tuple[Tensor, Tensor] | None:
    """Numbers of rows of which the step is the update, from nearly right ones by exchanges of single rows; or None."""
    misfit, rate = _misfit(rows, atoms, chosen, copies)
    longest, products = float(atoms.squares.max().sqrt()), None
    for _ in range(_EXCHANGES):
        if misfit <= floor:
            return chosen, copies
        if misfit > _EXCHANGES * rate * longest:
            return None
        products = atoms.products(chosen) if products is None else products
        left = rows + rate * (copies.double() @ atoms.matrices(chosen)).reshape(rows.shape)
        along = atoms.along(left) * rate
        # Adding row l and removing row k changes the squared misfit by 2 <left, a_l - a_k> + |a_l - a_k|^2.
        change = (2 * along + rate**2 * atoms.squares)[:, None] - 2 * rate**2 * products
        change += (rate**2 * atoms.squares - 2 * along)[chosen]
        entering, leaving = divmod(int(change.argmin()), len(chosen))
        copies = copies.clone()
        copies[leaving] -= 1
        if bool((chosen == entering).any()):
            copies[(chosen == entering).nonzero()[0]] += 1
        else:
            chosen, copies, products = (
                torch.cat([chosen, torch.tensor([entering])]),
                torch.cat([copies, copies.new_ones(1)]),
                None,
            )
        kept = copies > 0
        if not bool(kept.all()):
            chosen, copies, products = chosen[kept], copies[kept], None
        before = misfit
        misfit, rate = _misfit(rows, atoms, chosen, copies)
        if misfit >= before:
            return None
    return (chosen, copies) if misfit <= floor else None


def _repaired_sum(
    rows: Tensor, atoms: _Atoms, chosen: Tensor, weights: Tensor, rate: float, floor: float
) -> tuple[Tensor, Tensor] | None:
    """Numbers of rows, of any sum, of which the step is the update, at the known rate of one row; or None.

    From the rounded weights, the change of the least misfit is made until none lowers it enough: one row is exchanged
    for another, added, or removed.
    """
    copies = (weights / rate).round().long()
    chosen, copies = chosen[copies > 0], copies[copies > 0]
    if not len(chosen):
        return None
    squares = rate**2 * atoms.squares
    products = rate**2 * atoms.products(chosen)
    before = float("inf")
    for _ in range(_MOST_EXCHANGES):
        left = rows + rate * (copies.double() @ atoms.matrices(chosen)).reshape(rows.shape)
        misfit = float(left.norm())
        if misfit <= floor:
            return chosen[copies > 0], copies[copies > 0]
        if misfit**2 > (1 - _LEAST_PROGRESS) * before**2:
            return None
        before = misfit
        along = 2 * rate * atoms.along(left)
        adding = along + squares
        removing = (squares - along)[chosen].masked_fill(copies == 0, torch.inf)
        exchanging = torch.add(removing, products, alpha=-2).add_(adding[:, None])
        changes = exchanging.min(), adding.min(), removing.min()
        best = int(torch.stack(changes).argmin())
        entering, leaving = divmod(int(exchanging.argmin()), len(chosen)) if best == 0 else (-1, -1)
        if best == 1:
            entering = int(adding.argmin())
        elif best == 2:
            leaving = int(removing.argmin())
        copies = copies.clone()
        if leaving >= 0:
            copies[leaving] -= 1
        if entering >= 0 and not bool((chosen == entering).any()):
            chosen = torch.cat([chosen, torch.tensor([entering])])
            copies = torch.cat([copies, copies.new_zeros(1)])
            products = torch.cat([products, rate**2 * atoms.products(chosen[-1:])], dim=1)
        if entering >= 0:
            copies[(chosen == entering).nonzero()[0]] += 1
    return None


def _is_certain(rows: Tensor, atoms: _Atoms, chosen: Tensor, copies: Tensor, floor: float, *, is_sum: bool) -> bool:
    misfit, rate = _misfit(rows, atoms, chosen, copies)
    if not len(chosen):
        return False
    products = atoms.products(chosen)
    gram = products[chosen]
    smallest = float(torch.linalg.eigvalsh(gram)[0].clamp(min=0).sqrt())
    if misfit > floor or rate * smallest < _APART * floor:
        return False
    shares = torch.linalg.solve(gram, products.T).T  # (P, m) of the rows found in each other one
    apart = rate * (atoms.squares - (products * shares).sum(1)).clamp(min=0).sqrt() >= _APART * floor
    apart[chosen] = True
    fewer = shares.sum(1) - 1  # by how many records an exchange for one copy changes their number
    if is_sum:
        inside = (~apart).nonzero().flatten()
        own, total = shares[inside], int(copies.sum())
        heights = torch.linalg.inv(gram).diagonal().rsqrt()  # distance of each row's change from the span of the others
        most = (total / fewer[inside].abs().clamp(min=_CHANGED)).long()
        whole = most > _MOST_COPIES
        for number in range(1, 1 + min(int(most.max()) if len(inside) else 0, _MOST_COPIES)):
            wanted = copies - number * own
            rests = (wanted.round().clamp(min=0) - wanted).abs() * heights
            whole |= (number <= most) & (rate * rests.amax(1) < _APART * floor)
        return not bool(whole.any())
    apart |= fewer.abs() > _CHANGED
    return bool(apart.all())


def _copies(weights: Tensor, total: int) -> Tensor:
    """``(m,)`` int64 numbers of copies proportional to weights ``(m,)``, of the sum `total`."""
    shares = weights.double() / weights.sum().clamp(min=1e-300)
    return largest_remainders(shares, torch.tensor(total))


def nonnegative_least_squares(
    products: Callable[[Tensor], Tensor],
    along: Tensor,
    squares: Tensor,
    *,
    floor: float,
    is_enough: Callable[[Tensor, Tensor], bool],
) -> tuple[Tensor, Tensor]:
    """Numbers ``(m,)`` of the vectors, of P, with positive weights in least squares, and the weights.

    Active sets as of Lawson and Hanson, where several vectors enter at once. The search ends after 80 passes or after
    a number of operations (`_MOST_WORK`), with the weights that it has then.

    Args:
        products: gives ``(P, m)`` scalar products of all vectors with those of the given numbers.
        along: ``(P,)`` scalar products with the target.
        squares: ``(P,)`` squared lengths.
        floor: length of the rounding of the target.
        is_enough: whether to stop at given vectors and weights.
    """
    lengths = squares.clamp(min=1e-300).sqrt()
    chosen = torch.zeros(0, dtype=torch.int64)
    weights, columns = along.new_zeros(0), along.new_zeros(len(along), 0)
    limit, work = _VIOLATED * floor, 0
    for _ in range(_MOST_PASSES):
        slope = (along - columns @ weights) / lengths
        slope[chosen] = 0
        best, entering = slope.topk(min(max(1, len(chosen) // 4), len(slope)))
        entering = entering[best > limit]
        if not len(entering):
            break
        chosen = torch.cat([chosen, entering])
        columns = torch.cat([columns, products(entering)], dim=1)
        weights = torch.cat([weights, along.new_zeros(len(entering))])
        while work < _MOST_WORK:
            work += len(chosen) ** 3
            gram = columns[chosen]
            gram = gram + _RIDGE * gram.diagonal().mean() * torch.eye(len(gram), dtype=gram.dtype)
            factor, wanted = torch.linalg.cholesky_ex(gram).L, along[chosen, None]
            target = torch.cholesky_solve(wanted, factor)
            target = (target + torch.cholesky_solve(wanted - columns[chosen] @ target, factor))[:, 0]
            falling = target <= 0
            if not bool(falling.any()):
                weights = target
                break
            share = (weights[falling] / (weights[falling] - target[falling]).clamp(min=1e-300)).min().clamp(0, 1)
            weights = weights + share * (target - weights)
            kept = ~(falling & (weights <= 1e-14 * weights.max()))
            if bool(kept.all()):
                kept[falling.nonzero()[0]] = False
            chosen, weights, columns = chosen[kept], weights[kept], columns[:, kept]
        if work >= _MOST_WORK or is_enough(chosen, weights):
            break
    return chosen, weights
