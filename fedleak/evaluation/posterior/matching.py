"""Test of a declared epsilon by matching: whose answers fit an update best, whatever was known before."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Matches:
    """Clients that are matched with their updates.

    Attributes:
        right: ``(V,)`` 1 if an update fits the client's own answers better than those of each other one; 0 if not, also
            where two fit alike; NaN for a client that is compared with nobody.
        among: ``(V,)`` number of clients among which it is matched.
    """

    right: Tensor
    among: Tensor

    def bound(self, epsilon: Tensor) -> Tensor:
        """``(V,)`` largest chance of a right match if the messages of each client together have ``epsilon (V,)``.

        Of m clients whose answers are exchangeable beforehand, an update is at most ``exp(epsilon)`` times as likely
        under one of their answers as under another, so the probability of the own ones is at most ``e^epsilon /
        (e^epsilon + m - 1)``, for every law of the answers and every attack that looks at the client's own messages.

        References:
            [Kasiviswanathan14] (posterior odds).
        """
        # The m - 1 other clients' answers together, relative to the own ones: 1 / (1 + (m - 1) e^-epsilon).
        odds_against = (self.among - 1) * torch.exp(-epsilon)
        chance: Tensor = 1 / (1 + odds_against)
        return chance.masked_fill(self.right.isnan(), torch.nan)


def matched(fits: Tensor, groups: Tensor) -> Matches:
    """Matches of V clients, if ``fits (V, V)`` say how well each one's update fits the answers of each.

    Clients are compared within ``groups (V,)``, of which the server may know who belongs to which.
    """
    same_group = groups[:, None] == groups
    among = same_group.sum(1)
    # The best fit of another client of the group; a tie is no match.
    is_self = torch.eye(len(fits), dtype=torch.bool)
    other_fits = fits.masked_fill(~same_group | is_self, -torch.inf)
    fits_best = (fits.diagonal() > other_fits.amax(1)).double()
    return Matches(fits_best.masked_fill(among < 2, torch.nan), among)


def joined(parts: list[Matches]) -> Matches:
    """Matches of several views, one after another."""
    return Matches(torch.cat([part.right for part in parts]), torch.cat([part.among for part in parts]))
