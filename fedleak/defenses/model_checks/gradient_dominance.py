"""How much a single example dominates the own gradient."""

from fedleak.defenses.model_checks.base import ModelCheck, ReceivedModel


class GradientDominance(ModelCheck):
    """D-SNR: largest ratio over the weights of one example's gradient norm to the sum of all others'.

    ``max over W of max_i |g_i(W)| / (sum_j |g_j(W)| - max_i |g_i(W)|)``, with the gradient ``g_i(W)`` of example i by
    the weight W of a linear layer or a convolution. It is large where a batch's gradient is nearly that of one example.

    Read: the abstract of the publication and a summary of its section on detection, not its formula in full.

    References:
        [Garov24].
    """

    name = "gradient-dominance"

    def statistic(self, received: ReceivedModel) -> float:
        ratios = []
        for gradients in received.example_gradients.values():
            # Weights only: (N, *shape) of a bias has two dimensions.
            if gradients.dim() <= 2:
                continue
            norms = gradients.flatten(1).norm(dim=1).double()
            largest = norms.max()
            if float(largest) > 0:
                rest = norms.sum() - largest
                ratios.append(float(largest / rest.clamp(min=1e-12)))
            else:
                ratios.append(0.0)
        return max(ratios, default=0.0)
