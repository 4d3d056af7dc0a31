"""How much a single example dominates the own gradient."""

from fedleak.defenses.model_checks.base import ModelCheck, ReceivedModel


class GradientDominance(ModelCheck):
    """D-SNR: largest ratio over the weights of one example's gradient norm to the sum of all others'.

    ``max over W of max_i |g_i(W)| / (sum_j |g_j(W)| - max_i |g_i(W)|)``, with the gradient ``g_i(W)`` of example i by
    the weight W of a linear layer or a convolution. It is large where a batch's gradient is nearly that of one example.

    Read: the abstract of the publication and a summary of its section on detection, not its formula in full.

    References:
        Garov, Dimitrov, Jovanović and Vechev, "Hiding in Plain Sight: Disguising Data Stealing Attacks in Federated
        Learning", ICLR 2024, arXiv:2306.03013.
    """

    name = "gradient-dominance"

    def statistic(self, received: ReceivedModel) -> float:
        ratios = []
        for value in received.example_gradients.values():
            if value.dim() > 2:
                norms = value.flatten(1).norm(dim=1).double()
                rest = norms.sum() - norms.max()
                ratios.append(float(norms.max() / rest.clamp(min=1e-12)) if float(norms.max()) > 0 else 0.0)
        return max(ratios, default=0.0)
