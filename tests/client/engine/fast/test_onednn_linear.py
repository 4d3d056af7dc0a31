"""Products by oneDNN against torch's own, for matrices that lie in memory in any way."""

import pytest
import torch

from client.engine.fast.onednn_linear import product


@pytest.mark.parametrize("weight", [torch.randn(5, 7), torch.randn(7, 5).t(), torch.randn(5, 9)[:, 2:]])
@pytest.mark.parametrize("bias", [None, torch.randn(5)])
def test_strides_do_not_matter(weight: torch.Tensor, bias: torch.Tensor | None) -> None:
    inputs = torch.randn(6, 14)[:, ::2]
    torch.testing.assert_close(product(inputs, weight, bias), torch.nn.functional.linear(inputs, weight, bias))
