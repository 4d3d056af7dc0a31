"""The loss of several labels for each image, from any network that is written for one client."""

from torch import Tensor
from torch.func import functional_call
from torch.nn import functional

from modules.engine.network_task import ClassificationTask
from modules.engine.tasks import Parameters
from modules.nets.batch_norm import mask_batches


class TaggingTask(ClassificationTask):
    """Mean binary cross-entropy over a device's images and all labels."""

    def client_loss(self, parameters: Parameters, examples: Parameters, mask: Tensor) -> Tensor:
        """See `modules.engine.tasks.Task`."""
        network = self._own_network
        mask_batches(network, mask)
        logits = functional_call(network, parameters, (examples["image"],))
        losses = functional.binary_cross_entropy_with_logits(logits, examples["label"].float(), reduction="none")
        return (losses.mean(1) * mask).sum() / mask.sum().clamp(min=1)
