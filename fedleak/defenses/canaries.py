"""Canaries: clients whose update or data depends on a secret coin, to measure how well the noise hides it."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import torch
from torch import Tensor

from fedleak.core.errors import InputError, require
from fedleak.core.ranges import PositiveFloat
from fedleak.core.seeding import PERSISTENT, generator_for
from fedleak.core.view import CANARY_MINUS, CANARY_PLUS
from fedleak.defenses.base import Defense, Examples, Train, Update, per_client

COIN = "coin"
"""Ground truth of a client: +1 or -1, the world in which a canary lives; 0 for other clients."""


class Canaries(Defense):
    """Canary clients, which live in one of two worlds by a secret fair coin that holds for all rounds.

    It protects nobody: it is for a training that is made to be audited, and stands before `LocalDP`. The recording
    holds the canaries' updates in both worlds before the clip, which are public, and the coins as ground truth.
    `fedleak.attacks.CanaryBounds` infers the coins, and from them a lower bound of epsilon. One canary is the whole
    data of one client, the unit of `LocalDP`; the two worlds differ in it alone.

    * ``update`` is the strongest canary: instead of its trained delta the client sends ``coin * norm * c`` with a
      random unit vector c. With a norm of at least the clip, the worlds are twice the clip apart, as far as the noise
      promises to hide.
    * ``data`` tests the whole client: in the world +1 a share of its examples is mislabelled (a rating or click y
      becomes 1 - y, class k the class K - 1 - k, every next word the first of the vocabulary), in the world -1 none is.
      The client trains in both worlds and sends the update of its own. The number of examples is the same.

    The global model learns from canaries too, so do not deploy it.

    Args:
        kind: the kind of canary.
        share: probability with which a client is a canary, in (0, 1]; the recording lists their pseudonyms.
        norm: L2 norm of an ``update`` canary before the clip; at least the clip.
        mislabelled: share of a ``data`` canary's examples that are mislabelled in the world +1.
        seed: another seed draws other canaries and directions with the same secret key. They are drawn from the key,
            because a direction, which the recording holds, would name the client to whoever can draw it too.

    References:
        G. Andrew, P. Kairouz, S. Oh, A. Oprea, H. B. McMahan and V. Suriyakumar, "One-shot Empirical Privacy Estimation
        for Federated Learning", ICLR 2024, arXiv:2302.03098, for random directions as canary clients.
    """

    def __init__(
        self,
        *,
        kind: Literal["update", "data"] = "update",
        share: float = 1.0,
        norm: PositiveFloat = 1e3,
        mislabelled: float = 1.0,
        seed: int = 0,
    ) -> None:
        self.kind, self.share, self.norm, self.mislabelled, self.seed = kind, share, norm, mislabelled, seed
        require(
            kind in ("update", "data") and norm > 0,
            "Canaries.kind update or data, and a norm above 0",
            f"{kind} and {norm:g}",
            "A norm of at least LocalDP.clip lets the clip bind.",
        )
        require(
            0 < share <= 1 and 0 < mislabelled <= 1,
            "Canaries.share and Canaries.mislabelled in (0, 1]",
            f"{share:g} and {mislabelled:g}",
            "1.0 is all clients, and all of a client's examples.",
        )
        self._key = b""
        self._clients = torch.zeros(0, dtype=torch.int64)
        self._worlds: dict[str, Tensor] = {}

    def check_order(self, earlier: Sequence[Defense]) -> None:
        noisy = [type(one).__name__ for one in earlier if any(r.noise_scale > 0 for r in one.releases(()))]
        require(not noisy, "Canaries before the defence that adds noise", f"{noisy} before it", "Move Canaries up.")

    def set_key(self, key: bytes) -> None:
        self._key = key

    def chosen(self, clients: Tensor) -> Tensor:
        """``(C,)`` bool, which of ``clients (C,)`` are canaries."""
        keys = (generator_for(self._key, "canary", self.seed, client) for client in clients.tolist())
        draws = [float(torch.rand((), generator=key)) for key in keys]
        return torch.tensor(draws, dtype=torch.float64).reshape(-1) < self.share

    def coins(self, clients: Tensor) -> Tensor:
        """``(C,)`` coin of each client, 0 for one that is no canary."""
        keys = (generator_for(self._key, "coin", PERSISTENT, client) for client in clients.tolist())
        flips = torch.tensor([2 * int(torch.randint(2, (), generator=key)) - 1 for key in keys], dtype=torch.int64)
        return flips * self.chosen(clients)

    def train_locally(self, examples: Examples, mask: Tensor, clients: Tensor, train: Train) -> Update:
        """Has the clients train in both worlds of ``data`` canaries; each goes on with the update of its own world."""
        if self.kind == "update":
            return train(examples)
        plus = train({**examples, **self.mislabelled_examples(examples, mask, clients)})
        minus = train(examples)
        self._keep(clients, {CANARY_PLUS: plus.deltas, CANARY_MINUS: minus.deltas}, self.chosen(clients))
        is_in_plus = self.coins(clients) > 0
        return dataclasses.replace(
            minus,
            deltas=_of_clients(is_in_plus, plus.deltas, minus.deltas),
            private=_of_clients(is_in_plus, plus.private, minus.private),
        )

    def mislabelled_examples(self, examples: Examples, mask: Tensor, clients: Tensor) -> dict[str, Tensor]:
        """The fields that ``data`` canaries learn otherwise in the world +1; see `train_locally`.

        Raises:
            InputError: the examples have no label that could be wrong.
        """
        known = {name: rule for name, rule in _MISLABELLED.items() if name in examples}
        if not known:
            raise InputError(
                expected=f"examples with {' or '.join(_MISLABELLED)} for Canaries(kind=data)",
                found=", ".join(examples),
                way_out="Use Canaries(kind=update), which needs no labels.",
            )
        first = torch.ceil(self.mislabelled * mask.sum(1)).long()[:, None]
        wrong = mask & self.chosen(clients).to(mask.device)[:, None] & (mask.cumsum(1) <= first)
        return {name: _where(wrong, rule(examples[name]), examples[name]) for name, rule in known.items()}

    def protect(self, update: Update, generators: Callable[[int], torch.Generator]) -> Update:
        if self.kind == "data" or update.clients is None or not len(update.clients):
            return update
        coins = self.coins(update.clients).to(update.clients.device)
        draws = {name: torch.zeros_like(delta) for name, delta in update.deltas.items()}
        for place in coins.nonzero().flatten().tolist():
            generator = generator_for(self._key, "canary direction", self.seed, int(update.clients[place]))
            for delta in draws.values():
                delta[place] = torch.randn(delta[place].shape, generator=generator).to(delta)
        for name in update.rows:
            draws[name] *= update.row_mask(name)
        norms = torch.stack([draw.flatten(1).double().square().sum(1) for draw in draws.values()]).sum(0).sqrt()
        sizes = self.norm / norms.clamp(min=1e-30)
        plus = {name: draw * per_client(sizes, draw) for name, draw in draws.items()}
        self._keep(update.clients, {CANARY_PLUS: plus}, coins != 0)
        deltas = {
            name: torch.where(per_client(coins, delta) != 0, per_client(coins, delta) * plus[name], delta)
            for name, delta in update.deltas.items()
        }
        return dataclasses.replace(update, deltas=deltas)

    def recorded_facts(self, clients: Tensor) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        places = [self._clients.tolist().index(client) for client in clients.tolist()]
        return {name: value[places] for name, value in self._worlds.items()}, {COIN: self.coins(clients)}

    def _keep(self, clients: Tensor, worlds: dict[str, dict[str, Tensor]], canary: Tensor) -> None:
        """Keeps the canaries' updates in both worlds for the recording; zero for other clients."""
        self._clients = clients.cpu()
        self._worlds = {
            f"{world}{name}": (delta * per_client(canary.to(delta.device), delta)).float()
            for world, deltas in worlds.items()
            for name, delta in deltas.items()
        }


def _of_clients(chosen: Tensor, one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """By parameter, the values ``(C, ...)`` of `one` for the ``chosen (C,)`` clients, and of `other` for the rest."""
    return {name: torch.where(per_client(chosen, value) > 0, one[name], value) for name, value in other.items()}


def _opposite(labels: Tensor) -> Tensor:
    """1 - y of numbers in [0, 1]; K - 1 - k of classes, with K - 1 the largest of the cohort."""
    return 1 - labels if labels.is_floating_point() else labels.max() - labels


_MISLABELLED: dict[str, Callable[[Tensor], Tensor]] = {"label": _opposite, "tokens": lambda tokens: tokens.clamp(max=1)}
"""By field of the examples, what is learned instead; words are numbered from 1, and 0 is padding."""


def _where(rows: Tensor, one: Tensor, other: Tensor) -> Tensor:
    return torch.where(rows.reshape(*rows.shape, *[1] * (one.dim() - rows.dim())), one, other)
