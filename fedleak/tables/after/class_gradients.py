"""Step on Decaf's gradient bases: how the layers of a trained model change on the images of one class."""

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass

import pandas as pd
import torch

from fedleak.client.auxiliary_images import auxiliary
from fedleak.client.class_updates import gradient_bases
from fedleak.client.last_layer import layer_change
from fedleak.core.seeding import generator_for
from fedleak.evaluation.evaluation import Evaluation
from fedleak.reports.figures.maps import change_panels
from fedleak.tables.after.step import AfterStep
from fedleak.tables.cell_cache import CellRun


@dataclass(frozen=True, kw_only=True)
class GradientChanges(AfterStep):
    """Heat maps of the change of layers on the attacker's images of each class (Decaf, figures 11 and 12).

    The global model of the last recorded round trains on the images once. ``own-growing`` is the share of positive
    entries in the class's own row of the last layer, ``others-growing`` in the other rows; the proof of section III-D
    says that it is 0 where the last layer's input is not negative.

    Attributes:
        layers: further layers in the figure, e.g. ``body.2``.
    """

    name = "gradient-changes"
    metrics = ("own-growing", "others-growing")
    layers: tuple[str, ...] = ()

    def rows(self, run: CellRun, evaluation: Evaluation) -> Iterator[pd.DataFrame]:
        module, _ = run.build()
        last = run.recording.rounds[-1]
        (view,) = (view for view in run.recording.views() if view.round == last)
        view = dataclasses.replace(view, algorithm=module.algorithm)
        classes, width = layer_change(view).weight.shape[1:]
        attacker_images = auxiliary(view, classes)
        first_class = torch.eye(1, classes, dtype=torch.bool)
        # Each layer with the same draws, so that all changes are of one local training.
        changes: dict[str, torch.Tensor] = {}
        for layer in (None, *self.layers):
            generator = generator_for(run.seed, "class bases")
            bases = gradient_bases(view, attacker_images, first_class, layer=layer, generator=generator)
            changes[layer or "last layer"] = bases[0]
        # Without the biases, which follow the weights.
        changes["last layer"] = changes["last layer"][:, : classes * width]
        # Share of positive entries by the class of the images and by the row of the layer.
        growing = (changes["last layer"].reshape(classes, classes, width) > 0).double().mean(2)
        own_row = growing.diagonal()
        shares = {"own-growing": own_row, "others-growing": (growing.sum(1) - own_row) / (classes - 1)}
        evaluation.figures.append(change_panels(changes, run.setting))
        yield run.scores("class-bases", shares, victims=torch.arange(classes), round=last)
