"""Training of an image network on pooled data, for features by which clients rank images."""

from pathlib import Path
from typing import ClassVar

import torch
from lightning.pytorch.utilities.types import OptimizerLRScheduler
from safetensors.torch import save
from torch import Tensor, nn

from fedleak.client.cohort import Cohort
from fedleak.core.io.files import write_whole
from fedleak.core.ranges import NonNegativeInt, PositiveFloat
from fedleak.core.seeding import generator_for
from fedleak.modules.image_features.feature_extractors import untrained
from fedleak.training.lightning.built_from_data import BuiltFromData

WEIGHTS = "network.safetensors"
"""File of the trained weights in the run's folder, for ``model.extractor.weights``."""


class FeatureNetwork(BuiltFromData):
    """Centralised training of a network of torchvision or timm; one Trainer step is one batch of images.

    The images of a round's clients are a batch, randomly flipped and shifted. After the last step, the weights are
    written to ``network.safetensors`` in the run's folder.

    Args:
        name: network, see `fedleak.modules.image_features.feature_extractors.Extractor`.
        num_classes: number of classes, None to take the number from the data.
        learning_rate: largest learning rate of SGD with momentum 0.9, in a one-cycle schedule over the whole training.
        weight_decay: weight decay.
        shift: largest shift of an image, in pixels.
        seed: seed of every draw.

    References:
        [Smith17] (the schedule).
    """

    precisions: ClassVar[tuple[str, ...]] = ("32-true",)
    """In bfloat16 on a CPU, oneDNN leaves gradients of strided convolutions unset where a map has one pixel."""

    mean: Tensor
    std: Tensor

    def __init__(
        self,
        *,
        name: str = "resnet18",
        num_classes: int | None = None,
        learning_rate: PositiveFloat = 0.05,
        weight_decay: float = 5e-4,
        shift: NonNegativeInt = 4,
        seed: int = 0,
    ) -> None:
        super().__init__()
        self.name = name
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.shift = shift
        self.seed = seed
        self.build_with(num_classes=num_classes)

    def build(self, num_classes: int) -> None:
        """The network, with a last layer for these classes."""
        self.network, transform = untrained(self.name, classes=num_classes, seed=self.seed)
        self.register_buffer("mean", torch.tensor(transform.mean).reshape(1, -1, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(transform.std).reshape(1, -1, 1, 1), persistent=False)

    def forward(self, images: Tensor) -> Tensor:
        """``(B, 3, h, w)`` in [0, 1] -> logits ``(B, K)``."""
        logits: Tensor = self.network((images - self.mean) / self.std)
        return logits

    def training_step(self, cohort: Cohort, batch_idx: int) -> Tensor:
        """Mean cross-entropy of a batch."""
        images = cohort.examples["image"][cohort.mask]
        labels = cohort.examples["label"][cohort.mask]
        generator = generator_for(self.seed, "augmentation", self.global_step)
        moved = moved_images(images, shift=self.shift, generator=generator)
        loss = nn.functional.cross_entropy(self(moved), labels)
        self.log("train/loss", loss, prog_bar=True, batch_size=len(labels))
        return loss

    def validation_step(self, batch: dict[str, Tensor], batch_idx: int) -> None:
        """Logs the share of correctly classified test images."""
        accuracy = (self(batch["image"]).argmax(1) == batch["label"]).float().mean()
        self.log("test/accuracy", accuracy, on_epoch=True, prog_bar=True, batch_size=len(batch["label"]))

    def on_train_end(self) -> None:
        """Writes the weights."""
        if self.trainer.is_global_zero:
            weights = {name: value.detach().cpu().contiguous() for name, value in self.network.state_dict().items()}
            write_whole(Path(self.trainer.default_root_dir) / WEIGHTS, save(weights))

    def configure_optimizers(self) -> OptimizerLRScheduler:
        """SGD with a one-cycle schedule."""
        optimizer = torch.optim.SGD(
            self.parameters(), lr=self.learning_rate, momentum=0.9, weight_decay=self.weight_decay
        )
        steps = int(self.trainer.estimated_stepping_batches)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=self.learning_rate, total_steps=steps)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


def moved_images(images: Tensor, *, shift: int, generator: torch.Generator) -> Tensor:
    """Images ``(B, 3, h, w)``, each flipped with probability one half and shifted by whole pixels; the edge is zero."""
    count, _, height, width = images.shape
    flips = 1 - 2 * torch.randint(2, (count,), generator=generator)
    shifts = torch.randint(-shift, shift + 1, (count, 2), generator=generator)
    # Maps (2, 3) from a place of the result to one of the image, in coordinates from -1 to 1: a flip and a shift.
    theta = torch.zeros(count, 2, 3)
    theta[:, 0, 0] = flips.float()
    theta[:, 1, 1] = 1.0
    theta[:, :, 2] = 2 * shifts / torch.tensor([width, height])
    grid = nn.functional.affine_grid(theta.to(images), list(images.shape), align_corners=False)
    return nn.functional.grid_sample(images, grid, mode="nearest", align_corners=False)
