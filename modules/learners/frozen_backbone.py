"""Federated transfer learning: the head of a classifier on the features of a frozen public network."""

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from torch import Tensor, nn

from fedleak.client.backbones import DEFAULT_BACKBONE, BackboneName, backbone_file
from fedleak.client.cohort import Cohort
from fedleak.client.engine.fast.gradients import Parameters
from fedleak.client.engine.local_hyperparameters import LocalTraining
from fedleak.client.frozen_backbone import FrozenBackboneAlgorithm
from fedleak.client.nets.classifiers import draw_layers
from fedleak.client.pretrained_examples import LABEL
from fedleak.core.errors import require
from fedleak.core.ranges import NonNegativeInt
from fedleak.core.seeding import PERSISTENT, generator_for
from fedleak.modules.learners.pretrained import configuration
from fedleak.training.federated import Federation, Unpack
from fedleak.training.network_learner import NetworkLearner
from fedleak.training.round_record import TrainingExamples

HEAD = LocalTraining(learning_rate=0.1, batch_size=None)
"""Local training by default."""


class FrozenBackbone(NetworkLearner):
    """Federated classifier whose clients train the head alone: a linear layer, or two with ReLU, on frozen features.

    The backbone is no public parameter: the server sent it before, and no recording has it. Features of a record are
    computed once. The backbones:

    * ``efficientnet-lite0``: 1,280 features of images of any size from 32 pixels, weights of ImageNet.
    * ``fer``: 128 features of faces, which are made grey and resized to 64 pixels; trained on FER-2013.
    * ``transformers``: the mean of the last states of a network of the transformers library over the places of an image
      or the words of a text.
    * ``drawn``: three convolutions with random weights, as a control.

    Args:
        backbone: which network.
        path: file or folder with its weights. None takes those of an installed Python package, or of ``drawn`` the
            seed. Of ``transformers``, the folder with ``config.json`` and safetensors, or the path of the ``.json``
            file alone for random weights. A checkpoint does not give it.
        hidden: neurons of a hidden layer with ReLU; 0 for none.
        num_classes: number of classes, None to take the number from the data.
        local: how clients train.
        federation: arguments of `FederatedModule`.
    """

    algorithm: FrozenBackboneAlgorithm
    file_arguments: ClassVar[Mapping[str, tuple[str, ...]]] = {"path": ()}

    def __init__(
        self,
        *,
        backbone: BackboneName = DEFAULT_BACKBONE,
        path: str | None = None,
        hidden: NonNegativeInt = 0,
        num_classes: int | None = None,
        local: LocalTraining = HEAD,
        **federation: Unpack[Federation],
    ) -> None:
        super().__init__(local=local, **federation)
        self.backbone = backbone
        self.hidden = hidden
        self.config = ""
        self.folder = backbone_file(backbone, path)
        if backbone == "transformers":
            assert path is not None
            self.config = configuration(Path(path) if self.folder is None else self.folder / "config.json")
        self.build_with(num_classes=num_classes)

    def build(self, num_classes: int) -> None:
        algorithm = FrozenBackboneAlgorithm(
            backbone=self.backbone,
            config=self.config,
            hidden=self.hidden,
            num_classes=num_classes,
            base_seed=self.seed,
            folder=self.folder,
            local=self.local,
            update_l1=self.update_l1,
        )
        template: nn.Module = algorithm.template.network  # type: ignore[assignment]
        draw_layers(template, generator_for(self.seed, "global-model", PERSISTENT))
        self.network = template
        self.learn(algorithm)
        # The clients' template must not share memory with the global model.
        del algorithm.__dict__["template"]

    def client_truth(self, cohort: Cohort) -> dict[str, Tensor]:
        one_hot = nn.functional.one_hot(cohort.examples[LABEL].long(), self.algorithm.num_classes)
        return {"class_counts": (one_hot * cohort.mask[..., None]).sum(1)}

    def interact(self, cohort: Cohort, model: Parameters) -> Cohort:
        """Checks that the examples are what the backbone reads."""
        needed = {self.algorithm.record_field, LABEL}
        fields = ", ".join(cohort.examples)
        way_out = "Give other --data, or another --model.backbone."
        require(needed <= {*cohort.examples}, f"examples with {' and '.join(sorted(needed))}", fields, way_out)
        return cohort

    def examples(self, cohort: Cohort) -> TrainingExamples:
        """Images or texts as the backbone reads them, with their classes."""
        records = cohort.examples[self.algorithm.record_field]
        return TrainingExamples(records, cohort.examples[LABEL].long(), cohort.mask)
