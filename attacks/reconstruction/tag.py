"""TAG: texts by matching gradients with a squared and an absolute distance, as published."""

import dataclasses
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from fedleak.attacks.reconstruction.text_matching import (
    LABEL_RATE,
    Candidate,
    Target,
    TextMatchingAttack,
    drawn,
    squared_and_absolute,
)
from fedleak.client.algorithm import ExampleAlgorithm
from fedleak.core.attack import Variants
from fedleak.core.ranges import NonNegativeFloat
from fedleak.core.threat_model import ThreatModel
from fedleak.core.view import RoundView


@dataclass(frozen=True, kw_only=True)
class Tag(TextMatchingAttack):
    """TAG: Adam on vectors of words until their gradient is the received one, by ``|g - g'|^2 + alpha |g - g'|_1``.

    Words are those whose vectors have the greatest cosines. What is predicted from the texts (the next words, or the
    class) is searched too, as logits. Rate, steps and alpha are those with which the authors of LAMP ran TAG (tag.sh):
    0.1 for BERT's vectors, 2,500 and 0.01; here the rate is relative to the vectors' numbers, and vectors start with
    the mean length of a word's. Gradients of the words' vectors are not compared, as there.

    Threat model: passive server, one update of one step; knows the network and the tokenizer, and no text.

    Args:
        alpha: weight of the absolute distance.

    Variants:
        touched-rows: only words whose vectors changed may occur.

    Raises:
        ViewError: clients do not train a whole network on texts by one step of plain gradient descent, or it has no
            vectors of places.

    References:
        [Deng21], equation 4; values of [Balunovic22a].

    Example:
        >>> import torch
        >>> from fedleak.attacks.reconstruction import Tag
        >>> from fedleak.attacks.reconstruction.toy import toy
        >>> view, truth = toy("short-texts")
        >>> estimate = Tag(max_iter=80)(view, generator=torch.Generator().manual_seed(0))
        >>> float(estimate.score(view, truth).metrics["rouge1"].mean()) > 0.5
        True
    """

    name = "tag"
    references = ("Deng21, equation 4", "Balunovic22a, tag.sh")
    threat_model = ThreatModel(
        sees="the update of the whole network",
        knows="the network and the tokenizer",
        needs=("deltas", "model", ExampleAlgorithm),
    )
    variants: ClassVar[Variants] = {"touched-rows": {"touched_rows": True, "references": ()}}

    alpha: NonNegativeFloat = 0.01

    def search(self, view: RoundView, target: Target, generator: torch.Generator) -> Candidate:
        size = float(target.network.words.norm(dim=1).mean())
        start = drawn(target, size, generator)
        distance = squared_and_absolute(self.alpha)
        vectors = start.vectors.requires_grad_()
        labels = start.labels.requires_grad_()
        rates: list[dict[str, Any]] = [
            {"params": [vectors], "lr": self.step_size(target)},
            {"params": [labels], "lr": LABEL_RATE},
        ]
        optimizer = torch.optim.Adam(rates)
        for _ in range(self.max_iter):
            optimizer.zero_grad()
            target.loss(distance, vectors, labels, differentiable=True).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        return dataclasses.replace(start, vectors=vectors.detach(), labels=labels.detach())
