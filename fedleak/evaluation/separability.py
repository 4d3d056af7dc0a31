"""Separability of updates on manipulated features from honest updates: accuracy of classifiers, and t-SNE maps."""

from collections.abc import Sequence
from typing import Literal, get_args

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.manifold import TSNE
from sklearn.model_selection import GroupKFold, cross_val_predict
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import Tensor

Classifier = Literal["knn", "logistic", "forest"]
CLASSIFIERS: tuple[Classifier, ...] = get_args(Classifier)
_FOLDS = 5
"""Folds of the cross-validation."""
_NEIGHBOURS = 15
"""Neighbours that vote on an update."""


def correctly_classified(honest: Tensor, manipulated: Tensor, classifier: Classifier, *, seed: int) -> Tensor:
    """Share of each client's two updates that a classifier, trained on other clients' updates, recognises.

    Both updates of a client are in the same fold. Guessing gives 0.5.

    Args:
        honest: ``(N, P)`` updates on real features.
        manipulated: ``(N, P)`` updates of the same clients on manipulated features.
        classifier: 15 nearest neighbours, logistic regression or random forest, on standardised values. If the two
            kinds differ only in their spread around one centre, a linear classifier reaches at most 3/4 and the
            nearest neighbours may all be of the narrower kind; the forest has neither limit.
        seed: seed of the forest.

    Returns:
        ``(N,)`` of 0, 0.5 and 1, cross-validated in five folds.
    """
    classifiers: dict[Classifier, BaseEstimator] = {
        "knn": KNeighborsClassifier(_NEIGHBOURS),
        "logistic": LogisticRegression(max_iter=1000),
        "forest": RandomForestClassifier(random_state=seed),
    }
    count = len(honest)
    truth = np.repeat([0, 1], count)
    predicted = cross_val_predict(
        make_pipeline(StandardScaler(), classifiers[classifier]),
        torch.cat([honest, manipulated]).double().numpy(),
        truth,
        groups=np.tile(np.arange(count), 2),  # a client's two updates are in one fold
        cv=GroupKFold(_FOLDS),
    )
    return torch.from_numpy(predicted == truth).double().reshape(2, count).mean(0)


def embeddings(
    honest: Tensor, manipulated: Tensor, perplexities: Sequence[float], *, seed: int
) -> dict[str, tuple[Tensor, Tensor]]:
    """Two-dimensional t-SNE of honest updates ``(N, P)`` and manipulated ones ``(N, P)`` together.

    Returns:
        By title, ``(N, 2)`` places of the honest updates and ``(N, 2)`` of the manipulated ones.

    References:
        [Pham25], figure 7.
    """
    both = torch.cat([honest, manipulated]).double().numpy()
    maps = {}
    for perplexity in perplexities:
        tsne = TSNE(n_components=2, perplexity=perplexity, init="pca", random_state=seed)
        points = torch.from_numpy(tsne.fit_transform(both))
        first, second = points.tensor_split([len(honest)])
        maps[f"perplexity {perplexity:g}"] = first, second
    return maps
