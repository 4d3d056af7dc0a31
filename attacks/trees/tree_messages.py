"""The trees of each client over all rounds, with what the server had before each of them."""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from fedleak.attacks.trees.tree_boxes import TreeBoxes
from fedleak.client.tree_layout import LEFT, PADDING, tree_count
from fedleak.client.trees import BASE_SCORE, TREES, TreesAlgorithm
from fedleak.core.errors import ViewError
from fedleak.core.history import History


@dataclass
class SentTree:
    """A tree of a client.

    Attributes:
        boxes: the tree.
        base_score: probability before the first tree of the forest that it was grown on.
        others: trees of other clients that came into the forest since the client's tree before.
        before: ``(N, 8)`` each tree on which it was grown: the forest, and those before it in the same message.
    """

    boxes: TreeBoxes
    base_score: float
    others: list[TreeBoxes]
    before: list[Tensor] = field(default_factory=list)


@dataclass
class ClientTrees:
    """What one client sent.

    Attributes:
        message: number in the view of its first message.
        examples: number of examples that it reports.
        trees: its trees in the order in which they came.
    """

    message: int
    examples: int
    trees: list[SentTree] = field(default_factory=list)


def trees_of_clients(view: History, algorithm: TreesAlgorithm, most_trees: int) -> list[ClientTrees]:
    """Trees of each client, in the order of their first messages.

    Args:
        view: what the server saw.
        algorithm: what the clients run.
        most_trees: number of trees of a client that are read, the first ones.

    Raises:
        ViewError: the messages have no trees.
    """
    clients: dict[int, ClientTrees] = {}
    # Of each client, the trees that it sent and that are not in the forest yet, to tell them from others.
    sent_trees: dict[int, list[Tensor]] = {}
    seen: dict[int, int] = {}
    for part in view.each_round():
        if TREES not in part.deltas or BASE_SCORE not in part.deltas or TREES not in part.model:
            raise ViewError(f"expected messages with trees and base scores, got {', '.join(part.deltas) or 'none'}")
        forest = part.model[TREES]
        size = tree_count(forest)
        for position, pseudonym in enumerate(part.pseudonyms.tolist()):
            if pseudonym not in clients:
                is_sender = (view.pseudonyms == pseudonym) & (view.sent_in == part.round)
                message = int(is_sender.nonzero()[0, 0])
                clients[pseudonym] = ClientTrees(message=message, examples=int(part.example_counts[position]))
                sent_trees[pseudonym], seen[pseudonym] = [], 0
            client = clients[pseudonym]
            if len(client.trees) >= most_trees:
                continue
            # A client that gets a forest goes on from its base score.
            score = part.model[BASE_SCORE] if size else part.deltas[BASE_SCORE][position]
            base_score = float(score.double().flatten()[0])
            others = _without(list(forest[seen[pseudonym] : size]), sent_trees[pseudonym])
            seen[pseudonym] = size
            before = list(forest[:size])
            for tree in part.deltas[TREES][position]:
                boxes = TreeBoxes.of(tree, features=algorithm.features)
                if boxes is not None:
                    others_boxes = _boxes_of(others, algorithm.features)
                    client.trees.append(SentTree(boxes, base_score, others_boxes, list(before)))
                    sent_trees[pseudonym].append(_as_in(forest, tree))
                    others = []
                if float(tree[0, LEFT]) != PADDING:
                    before.append(tree)
    return list(clients.values())


def _without(trees: list[Tensor], sent: list[Tensor]) -> list[Tensor]:
    """The trees without those that a client sent, each once: an equal one of another client stays.

    A tree that has been left out is taken from `sent`.
    """
    others = []
    for tree in trees:
        place = next((number for number, mine in enumerate(sent) if torch.equal(tree, mine)), None)
        if place is None:
            others.append(tree)
        else:
            sent.pop(place)
    return others


def _boxes_of(trees: list[Tensor], features: int) -> list[TreeBoxes]:
    boxes = (TreeBoxes.of(tree, features=features) for tree in trees)
    return [tree for tree in boxes if tree is not None]


def _as_in(forest: Tensor, tree: Tensor) -> Tensor:
    """A tree with the padding that trees of a forest have."""
    if forest.shape[1] <= len(tree):
        return tree[: forest.shape[1]]
    padding = torch.zeros(forest.shape[1] - len(tree), tree.shape[1])
    padding[:, 0] = -2
    return torch.cat([tree, padding])
