"""What the engine trains."""

from typing import Protocol, runtime_checkable

from torch import Tensor

from modules.engine.fast.buffer_pool import BufferPool
from modules.engine.fast.manual_backward import Descent

Parameters = dict[str, Tensor]
POSITION = "position"
"""Field the engine adds to a mini-batch: each example's place in the client's list; absent in full batches."""


class Task(Protocol):
    """What the engine trains: a loss, given once for one client and once for stacked clients."""

    @property
    def batched_by_hand(self) -> bool:
        """Whether `client_losses` is faster than vmap over `client_loss`; `auto` takes the vectorized engine then."""

    @property
    def random(self) -> bool:
        """Whether the loss draws at random, as dropout does: it is given `DRAWS` then, and must use no others."""

    def client_loss(self, parameters: Parameters, examples: Parameters, mask: Tensor) -> Tensor:
        """Mean loss of one client: parameters ``shape``, examples ``(N, ...)``, mask ``(N,)`` -> scalar."""

    def client_losses(self, parameters: Parameters, examples: Parameters, mask: Tensor) -> Tensor:
        """Mean losses of stacked clients: ``(C, *shape)``, ``(C, N, ...)``, ``(C, N)`` -> ``(C,)``."""

    def client_gradients(
        self, parameters: Parameters, examples: Parameters, mask: Tensor, buffers: BufferPool
    ) -> tuple[Tensor, Parameters] | None:
        """`client_losses` and its gradients by every parameter, written out; None to leave them to autograd.

        The gradients may lie in `buffers`, which the next step writes over.
        """


@runtime_checkable
class WrittenTask(Protocol):
    """What a task may have besides: gradients of one client, which save what autograd does besides the numbers."""

    @property
    def written(self) -> bool:
        """Whether they are written out for this task's network."""

    def client_gradient(self, parameters: Parameters, examples: Parameters, mask: Tensor) -> tuple[Tensor, Parameters]:
        """`Task.client_loss` and its gradients by every parameter."""

    def client_descent(self, step: Descent, examples: Parameters, mask: Tensor) -> Tensor:
        """One step of plain gradient descent from and to the parameters in `step`; returns `Task.client_loss`."""
