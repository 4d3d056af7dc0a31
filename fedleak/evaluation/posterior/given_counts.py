"""Probability of yes-or-no answers where it is known how many of each kind are yes."""

import math

import torch
from torch import Tensor


def log_probability_given_counts(
    odds: Tensor, labels: Tensor, value_index: Tensor, kinds: Tensor, *, values: int
) -> Tensor:
    """``(P,)`` logarithm to base 2 of the probability of the true answers about each value, given their counts.

    Independent answers with these log odds have, given that n of a kind are yes, the probability ``prod_yes w_i /
    e_n(w)`` with ``w_i = exp(odds_i)`` and the elementary symmetric polynomial e_n, which sums over all choices of n
    answers (conditional Bernoulli law). It is uniform where all odds of a kind are equal. By the chain rule, the bits
    of the answers are those of the counts and these.

    Args:
        odds: ``(N,)`` log odds of the answers.
        labels: ``(N,)`` bool, which are yes.
        value_index: ``(N,)`` number of the value that each is about.
        kinds: ``(N,)`` kind of each.
        values: number of values P.

    References:
        [Chen97], equation 2 and section 2 (the recursion of e_n).
    """
    # log prod_yes w_i of each value.
    nats = torch.zeros(values, dtype=torch.float64).index_add_(0, value_index, odds.double() * labels)
    # A group is the answers of one kind about one value, of which the number of yeses is given.
    group = value_index
    if len(kinds):
        group = value_index * (int(kinds.max()) + 1) + kinds
    groups, group = torch.unique(group, return_inverse=True)
    sizes = torch.bincount(group, minlength=len(groups))
    counts = torch.bincount(group, labels.double(), minlength=len(groups)).long()
    # The answers of each group in a row of a matrix, as many recursions side by side.
    order = group.argsort(stable=True)
    start_of_group = sizes.cumsum(0) - sizes
    column = torch.arange(len(group)) - start_of_group[group[order]]
    width = int(sizes.max()) if len(sizes) else 0
    table = torch.full((len(groups), width), -torch.inf, dtype=torch.float64)
    table[group[order], column] = odds[order].double()
    # log e_n of the first answers: e_n(w_1 .. w_i) = e_n(w_1 .. w_(i-1)) + w_i e_(n-1)(w_1 .. w_(i-1)).
    orders = int(counts.max()) + 1 if len(counts) else 1
    sums = torch.full((len(groups), orders), -torch.inf, dtype=torch.float64)
    sums[:, 0] = 0.0
    for number in range(width):
        sums[:, 1:] = torch.logaddexp(sums[:, 1:], sums[:, :-1] + table[:, number, None])
    # A value's logarithm is less log e_n of each of its groups.
    of_groups = sums.gather(1, counts[:, None])[:, 0]
    value_of_group = torch.zeros(len(groups), dtype=torch.int64).scatter_(0, group, value_index)
    nats = nats.index_add(0, value_of_group, -of_groups)
    return nats / math.log(2)
