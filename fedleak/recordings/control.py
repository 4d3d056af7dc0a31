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
            earlier = tuple(self._changed(earlier_view) for earlier_view in view.earlier)
            yield dataclasses.replace(self._changed(view), earlier=earlier)

    def _changed(self, view: RoundView) -> RoundView:
        # The messages of a sum have one update, and it is another's only if that is of another sum.
        first_victims, message_of_victim = view.distinct_messages()
        messages = view.select(first_victims)
        if self.control == "others" and messages.victims > 1:
            exchanged = {name: value.roll(1, 0) for name, value in messages.deltas.items()}
        else:
            # A single message has no other to be exchanged for.
            exchanged = _noise(messages)
        deltas = {name: value[message_of_victim] for name, value in exchanged.items()}
        if view.served is not None:
            # Rows of padding are zero, as in every view: another client may have been served more.
            for name in view.row_parameters & deltas.keys():
                rows = deltas[name]
                mask = view.served_mask
                deltas[name] = rows * mask.reshape(*mask.shape, *[1] * (rows.dim() - 2)).to(rows)
        return dataclasses.replace(view, deltas=deltas)


def _noise(view: RoundView) -> dict[str, Tensor]:
    generator = generator_for(int(view.pseudonyms[0]), "control", view.round)
    noise = {}
    for name, value in view.deltas.items():
        # The root mean square over all clients: that of one client would say who it is.
        scale = value.double().square().mean().sqrt().to(value)
        noise[name] = scale * torch.randn(value.shape, generator=generator, dtype=value.dtype)
    return noise
