"""The server's step against what clients can have sent."""

from fedleak.defenses.model_checks.base import ModelCheck, ReceivedModel, norm


class ServerStep(ModelCheck):
    """Norm of the received model's change since the round before, over the norm of the own update of that round.

    Under FedAvg with a server learning rate of 1, the change is a weighted mean of the clients' updates, so that its
    norm is at most the largest of theirs; a client knows its own only. In the first round there is no change, and the
    statistic is 0.
    """

    name = "server-step"

    def statistic(self, received: ReceivedModel) -> float:
        if received.is_first or received.own_delta is None:
            return 0.0
        change = {name: value - received.reference[name] for name, value in received.model.items()}
        return float(norm(change) / norm(received.own_delta).clamp(min=1e-12))
