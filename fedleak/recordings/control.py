"""A recording whose updates, or priors, say nothing of its clients: what attacks find nevertheless is not from them."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from fedleak.core.seeding import generator_for
from fedleak.core.view import RoundView
from fedleak.recordings.recording import Recording

Control = Literal["others", "noise", "priors"]
"""What is exchanged: each update for that of another client of its view, or for noise of the same size; or what priors
say of the possible answers."""


class ControlRecording(Recording):
    """A recording in which each client has the update of another one, or noise; the ground truth is as it was.

    What is public, such as served items, reported counts and models, stays with its client, so an attack that still
    succeeds reads this, or the ground truth. The update of another client is not without information where clients
    share what is asked: a record of the other is none of one's own.

    Args:
        directory: folder of the recording.
        control: ``others`` for updates of other clients of the same view, or of other sums, which noise replaces for a
            client or a sum that is alone in its view; ``noise`` for normal noise, with the root mean square of each
            parameter in the view; ``priors`` for priors that say nothing, see `fedleak.evaluation.posterior.posterior`.
    """

    def __init__(self, directory: str | Path, control: Control) -> None:
        super().__init__(directory)
        self.control = control

    def views(self, **options: Any) -> Iterator[RoundView]:
        """Views as of `Recording.views`, with other updates."""
        if self.control == "priors":
            yield from super().views(**options)
            return
        for view in super().views(**options):
            earlier = tuple(self._changed(one) for one in view.earlier)
            yield dataclasses.replace(self._changed(view), earlier=earlier)

    def _changed(self, view: RoundView) -> RoundView:
        # The messages of a sum have one update, and it is another's only if that is of another sum.
        first, place = view.distinct_messages()
        sent = view.select(first)
        others = self.control == "others" and sent.victims > 1
        deltas = {name: value.roll(1, 0) for name, value in sent.deltas.items()} if others else _noise(sent)
        deltas = {name: value[place] for name, value in deltas.items()}
        mask = None if view.served is None else view.served_mask
        for name in view.row_parameters & deltas.keys():
            if mask is not None:
                own = deltas[name]
                deltas[name] = own * mask.reshape(*mask.shape, *[1] * (own.dim() - 2)).to(own)
        return dataclasses.replace(view, deltas=deltas)


def _noise(view: RoundView) -> dict[str, Tensor]:
    generator = generator_for(int(view.pseudonyms[0]), "control", view.round)
    made = {}
    for name, value in view.deltas.items():
        scale = value.double().square().mean().sqrt().to(value)  # of one client, it would say who it is
        made[name] = scale * torch.randn(value.shape, generator=generator, dtype=value.dtype)
    return made
