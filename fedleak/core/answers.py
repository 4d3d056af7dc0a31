"""What an estimate says of the answers to its questions, in a form to which a prior can be added."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

Rescored = Callable[[Tensor], Any]
"""Function to the `fedleak.core.estimates.Scores` of an estimate with other values."""


@dataclass(frozen=True, kw_only=True)
class Choices:
    """Questions with a finite number of answers: evidence for each possible answer, and which one is true.

    A row is one possible answer. Without `questions` each row is a yes-or-no question of its own; with them, one row of
    each question is true, and the others are false.

    Attributes:
        scores: ``(N,)`` evidence for each row, comparable between the rows of all people; higher means more likely.
        labels: ``(N,)`` bool, which rows are true.
        places: ``(N,)`` place, among the values of `Scores.metrics`, of what a row is about; -1 for a row that helps to
            calibrate, but belongs to no value.
        rescored: the scores of the same estimate, with the log odds ``(N,)`` of the rows in place of its evidence.
        people: ``(N,)`` number of the person whom a row is about, if `Scores.units` are given; None for the victims at
            `places`.
        questions: ``(N,)`` number of the question to which a row is an answer; None for yes-or-no questions.
        strata: ``(N,)`` kind of question, e.g. the number of an attribute; each kind is calibrated on its own. None for
            one kind.
        counted: ``(N,)`` kind of what a row is about, e.g. the class of a record, if the number of true rows of each
            kind is a question of its own about a person; None if it is not.
        alike: whether everybody has a row about each of the same things, in one order, about which the same is known
            beforehand of all people, e.g. records of a pool; so that answers of one person could be those of another.
        decided: ``(N,)`` bool, the answers on which the attack decided itself, which is evidence of its own; None for
            an attack that only scores.

    Example:
        >>> import torch
        >>> from fedleak import Choices, Scores
        >>> def rescored(odds):
        ...     return Scores({"auc": torch.ones(len(odds))})
        >>> labels = torch.tensor([[1, 0], [0, 1]])
        >>> answers = Choices.of_matrix(torch.tensor([[0.9, 0.2], [0.4, 0.6]]), labels, rescored)
        >>> answers.places
        tensor([0, 0, 1, 1])
    """

    scores: Tensor
    labels: Tensor
    places: Tensor
    rescored: Rescored
    people: Tensor | None = None
    questions: Tensor | None = None
    strata: Tensor | None = None
    counted: Tensor | None = None
    alike: bool = False
    decided: Tensor | None = None

    @classmethod
    def of_matrix(
        cls,
        scores: Tensor,
        labels: Tensor,
        rescored: Rescored,
        mask: Tensor | None = None,
        decided: Tensor | None = None,
    ) -> "Choices":
        """Yes-or-no questions about each client of a view, a row ``(V, R)`` each, those in the mask only.

        `rescored` takes log odds ``(V, R)``, minus infinity outside the mask.
        """
        in_mask = mask
        if in_mask is None:
            in_mask = torch.ones_like(labels, dtype=torch.bool)
        # Row v of the matrix is about client v.
        clients = torch.arange(len(in_mask))[:, None].expand(in_mask.shape)

        def of_rows(odds: Tensor) -> Any:
            # The flat log odds go back to their places in the matrix; what is outside of the mask is impossible.
            impossible = torch.full(in_mask.shape, -torch.inf, dtype=torch.float64)
            return rescored(impossible.masked_scatter(in_mask, odds))

        return cls(
            scores=scores[in_mask].double(),
            labels=labels[in_mask] > 0.5,
            places=clients[in_mask],
            rescored=of_rows,
            decided=None if decided is None else decided[in_mask],
        )


@dataclass(frozen=True, kw_only=True)
class Quantities:
    """Vectors of numbers: the estimate of each person's, and the true one.

    Attributes:
        inferred: ``(V, K)`` of the view's victims.
        true: ``(V, K)``.
        rescored: the scores of the same estimate, with other vectors ``(V, K)`` in place of `inferred`.
        grid: ``(V,)`` distance of neighbouring possible values, e.g. of the shares of whole examples; 0 for none.

    Example:
        >>> import torch
        >>> from fedleak import Quantities, Scores
        >>> true, found, step = torch.tensor([[0.25, 0.75]]), torch.tensor([[0.5, 0.5]]), torch.tensor([0.25])
        >>> def rescored(inferred):
        ...     return Scores({"l1": (inferred - true).abs().sum(1)})
        >>> answers = Quantities(inferred=found, true=true, rescored=rescored, grid=step)
        >>> answers.rescored(answers.inferred).metrics["l1"]
        tensor([0.5000])
    """

    inferred: Tensor
    true: Tensor
    rescored: Rescored
    grid: Tensor
