"""The closed form of RAIFLE for a pointwise squared loss (appendix A, equation 12)."""

import torch
from torch import Tensor


def closed_form(jacobian: Tensor, outputs: Tensor, gradient: Tensor) -> Tensor:
    """The interactions whose gradient of ``||I - f||^2`` is the received one: ``f - J^+ g / 2``.

    Where the Jacobian has rank m the answer is the only one (theorem 1); where it has not, it is the answer nearest
    to the model's outputs.

    Args:
        jacobian: ``(V, P, m)`` gradients of the model's outputs by its parameters, a column for each item.
        outputs: ``(V, m)`` the model's outputs on the items.
        gradient: ``(V, P)`` the client's gradient, or its update divided by minus the learning rate.

    Returns:
        ``(V, m)`` real-valued interactions.
    """
    solution: Tensor = torch.linalg.pinv(jacobian) @ gradient[..., None]
    return outputs - solution.squeeze(-1) / 2


def is_identifiable(jacobian: Tensor) -> Tensor:
    """``(V,)`` whether the interactions are the only ones that fit: the Jacobian ``(V, P, m)`` has rank m."""
    unique: Tensor = torch.linalg.matrix_rank(jacobian) == jacobian.shape[-1]
    return unique
