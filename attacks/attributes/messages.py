"""Messages of one round as inner products, without the mean of the round and at unit length, by layer."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedleak.attacks.attributes.estimates import AttributeEstimate, attribute_names, known_people
from fedleak.core.attack import Attack
from fedleak.core.errors import ViewError
from fedleak.core.estimates import Estimate
from fedleak.core.history import History
from fedleak.core.threat_model import ThreatModel
from fedleak.core.view import ATTRIBUTE, RoundView, View

_NUMBERS = 2**23
"""Numbers of messages in memory at a time."""
_HELD = 2**26
"""Numbers of messages in memory that all later ones of a large round are compared with."""
_ALIKE = 1e-12
"""Share of the largest squared length below which a message without the round's mean is considered rounding."""


class AttributeAttack(Attack):
    """Base class of attacks that infer attributes of people from the messages of people whose attributes are known."""

    family = "attributes"
    estimates: ClassVar[type[Estimate]] = AttributeEstimate
    threat_model = ThreatModel(
        sees="the update of each person in each round, under a name that stays",
        knows="the attributes of some of the people who take part",
        needs=("deltas", "sent_in", "auxiliary:attribute_pseudonyms"),
    )


@dataclass(frozen=True)
class People:
    """The people behind the messages of a view.

    Attributes:
        names: ``(N,)`` pseudonyms of all senders, ascending.
        known: ``(N,)`` True for those whose attributes the server knows.
        values: by attribute, ``(N,)`` value of the known people, -1 where it is unknown and for all others.
        first: ``(N,)`` number of the first message of each.
    """

    names: Tensor
    known: Tensor
    values: dict[str, Tensor]
    first: Tensor

    @classmethod
    def of(cls, view: History) -> "People":
        """The people of a view.

        Raises:
            ViewError: all or none of the senders are known, or two of them do not differ in any attribute.
        """
        names, place = torch.unique(view.pseudonyms, return_inverse=True)
        first = torch.full_like(names, view.victims)
        first = first.scatter_reduce(0, place, torch.arange(view.victims), "amin")
        pseudonyms = known_people(view)
        known = torch.isin(names, pseudonyms)
        if not bool(known.any()) or bool(known.all()):
            found = f"{int(known.sum())} known of {len(names)}"
            raise ViewError(f"expected messages of people with known attributes and of others, got {found}")
        order = pseudonyms.argsort()
        row = order[torch.searchsorted(pseudonyms[order], names[known])]
        values = {}
        for name in attribute_names(view):
            values[name] = torch.full_like(names, -1)
            values[name][known] = view.auxiliary[f"{ATTRIBUTE}{name}"].long()[row]
            if len(torch.unique(values[name][values[name] >= 0])) < 2:
                raise ViewError(f"expected known people with different values of {name}, got one value or none")
        return cls(names, known, values, first)

    def places(self, pseudonyms: Tensor) -> Tensor:
        """``(V,)`` number here of each sender."""
        return torch.searchsorted(self.names, pseudonyms.contiguous())

    def classes(self, name: str) -> int:
        """Number K of values of an attribute among the known people: the largest and one."""
        return int(self.values[name].max()) + 1

    def estimate(self, evidence: dict[str, Tensor]) -> AttributeEstimate:
        """The estimate of evidence ``(N, K)`` by attribute, of the people who are not known."""
        unknown = ~self.known
        return AttributeEstimate(
            messages=self.first[unknown], evidence={name: own[unknown] for name, own in evidence.items()}
        )


def layers_of(view: View) -> dict[str, list[str]]:
    """Names of the recorded parameters by layer: the name without its last part."""
    layers: dict[str, list[str]] = {}
    for name in view.deltas:
        layers.setdefault(name.rpartition(".")[0] or name, []).append(name)
    return layers


def blocks(view: View, name: str, among: int | None = None) -> Iterator[Tensor]:
    """The deltas of a parameter as vectors ``(V, d)``, a few columns at a time; rows that were not sent are zero.

    The number of columns is that for `among` messages in memory, by default those of the view.
    """
    delta, most = view.deltas[name], max(1, _NUMBERS // (among or view.victims))
    if name not in view.row_parameters:
        yield from torch.split(delta.flatten(1), most, dim=1)
        return
    table, width = view.model[name].shape[0], delta[0, 0].numel()
    served = view.served_items
    rows = max(1, most // width)
    for start in range(0, table, rows):
        message, place = ((served >= start) & (served < start + rows)).nonzero(as_tuple=True)
        block = delta.new_zeros(len(delta), min(rows, table - start), width)
        block[message, served[message, place] - start] = delta[message, place].flatten(1)
        yield block.flatten(1)


def products(view: View, other: View, names: list[str]) -> Tensor:
    """``(V, W)`` float64 inner products of the deltas of some parameters in two views of a round."""
    total = torch.zeros(view.victims, other.victims, dtype=torch.float64)
    among = max(view.victims, other.victims)
    for name in names:
        for own, theirs in zip(blocks(view, name, among), blocks(other, name, among), strict=True):
            total += (own.float() @ theirs.float().T).double()
    return total


def products_of_rounds(view: History) -> Iterator[tuple[Tensor, dict[str, Tensor]]]:
    """Senders ``(V,)`` of each round, ascending, and by layer the ``(V, V)`` inner products of their messages.

    Of a round that is large, some messages are in memory while all later ones are read for them.
    """
    for number in torch.unique(view.sent_in).tolist():
        left = (view.sent_in == number).nonzero().flatten()
        senders = view.pseudonyms[left].sort().values
        found: dict[str, Tensor] = {}
        while len(left):
            held: list[tuple[Tensor, RoundView]] = []
            size, full = 0, False
            for part in view.each_part(left):
                ordered = part.select(part.pseudonyms.argsort())
                place = torch.searchsorted(senders, ordered.pseudonyms)
                size += sum(delta.numel() for delta in ordered.deltas.values())
                full = full or (bool(held) and size > _HELD)
                if not full:
                    held.append((place, ordered))
                for layer, names in layers_of(ordered).items():
                    total = found.setdefault(layer, torch.zeros(len(senders), len(senders), dtype=torch.float64))
                    for rows, earlier in held:
                        inner = products(earlier, ordered, names)
                        total[place[:, None], rows] = inner.T
                        total[rows[:, None], place] = inner
                del part, ordered  # before the next part is read
            done = senders[torch.cat([place for place, _ in held])]
            left = left[~torch.isin(view.pseudonyms[left], done)]
        yield senders, found


def cosines(inner: Tensor) -> Tensor:
    """``(V, V)`` cosines of vectors without their mean, from their inner products ``(V, V)``.

    A vector that is the mean has the cosine 0 with all others.

    >>> cosines(torch.tensor([[2.0, 0.0], [0.0, 2.0]])).tolist()
    [[1.0, -1.0], [-1.0, 1.0]]
    """
    means = inner.mean(0)
    centred = inner - means - means[:, None] + inner.mean()
    squares = centred.diagonal().clamp(min=0)
    kept = squares > _ALIKE * squares.max().clamp(min=torch.finfo(torch.float64).tiny)
    lengths = torch.where(kept, squares.sqrt(), torch.inf)
    found: Tensor = centred / lengths / lengths[:, None]
    return found
