"""Network of neural collaborative filtering, for one client or stacked clients."""

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional


def ncf_mlp(user_dim: int, item_dim: int, hidden: tuple[int, ...]) -> nn.Sequential:
    """Layers [user, item] -> hidden... -> 1 with ReLU between (RAIFLE, section V.A.1)."""
    layers: list[nn.Module] = []
    width = user_dim + item_dim
    for size in hidden:
        layers += [nn.Linear(width, size), nn.ReLU()]
        width = size
    return nn.Sequential(*layers, nn.Linear(width, 1))


def layer_names(parameters: Iterable[str]) -> list[str]:
    """Names ``mlp.<i>`` of the linear layers in order."""
    numbers = (int(name.split(".")[1]) for name in parameters if name.startswith("mlp.") and name.endswith(".weight"))
    return [f"mlp.{number}" for number in sorted(numbers)]


def ncf_logits(parameters: Mapping[str, Tensor], users: Tensor, items: Tensor) -> Tensor:
    """Logits of items for the users of stacked clients.

    The first layer is split, ``W [u; v] = W_u u + W_v v``, so that the user's part is computed once per client.

    Args:
        parameters: ``mlp.<i>.weight`` ``(C, out, in)`` and ``mlp.<i>.bias`` ``(C, out)``.
        users: ``(C, d_u)``.
        items: ``(C, N, d_v)``.

    Returns:
        ``(C, N)`` logits.
    """
    layers = layer_names(parameters)
    first = parameters[f"{layers[0]}.weight"]
    of_user, of_item = torch.split_with_sizes(first, [users.shape[-1], items.shape[-1]], dim=2)
    # What the first layer adds to every item of a client: W_u u + b.
    bias = parameters[f"{layers[0]}.bias"]
    offset = bias[:, None] + users[:, None] @ of_user.transpose(1, 2)
    hidden = torch.baddbmm(offset, items, of_item.transpose(1, 2))
    for layer in layers[1:]:
        weight = parameters[f"{layer}.weight"]
        bias = parameters[f"{layer}.bias"]
        hidden = torch.baddbmm(bias[:, None], functional.relu(hidden), weight.transpose(1, 2))
    return hidden.squeeze(2)
