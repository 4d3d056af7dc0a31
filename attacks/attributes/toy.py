"""People whose updates depend on one of their attributes, `colour`, and not on the other, `luck`."""

import torch
from torch import Tensor

from fedleak.core.history import History
from fedleak.core.seeding import generator_for
from fedleak.core.view import ATTRIBUTE, ATTRIBUTE_PSEUDONYMS

PEOPLE, ROUNDS, PARAMETERS = 120, 2, 40
SHIFTED = 8
"""Parameters that the colour shifts."""
LEAK = 2.0
"""Standard deviation of the shift, in those of the noise."""


def toy() -> tuple[History, dict[str, Tensor]]:
    """Everyone's updates of all rounds, half of the people with known attributes, and the ``attributes (V, A)``."""
    generator = generator_for(0, "attributes toy")
    colour = torch.randint(2, (PEOPLE,), generator=generator)
    luck = torch.randint(3, (PEOPLE,), generator=generator)
    sender = torch.arange(PEOPLE).repeat(ROUNDS)
    shift = LEAK * torch.randn(ROUNDS, 2, PARAMETERS, generator=generator)
    shift[..., SHIFTED:] = 0
    noise = torch.randn(ROUNDS, PEOPLE, PARAMETERS, generator=generator)
    known = torch.randperm(PEOPLE, generator=generator)[: PEOPLE // 2]
    view = History(
        round=ROUNDS - 1,
        pseudonyms=sender,
        example_counts=torch.full((len(sender),), 5),
        deltas={"weight": (noise + shift[:, colour]).flatten(0, 1)},
        model={"weight": torch.zeros(PARAMETERS)},
        sent_in=torch.arange(ROUNDS).repeat_interleave(PEOPLE),
        auxiliary={
            ATTRIBUTE_PSEUDONYMS: known,
            f"{ATTRIBUTE}colour": colour[known],
            f"{ATTRIBUTE}luck": luck[known],
        },
    )
    return view, {"attributes": torch.stack([colour, luck], dim=1)[sender], "clients": sender}
