"""Whether updates made from manipulated features can be distinguished from honest ones: a map, and a number."""

from collections.abc import Sequence
from typing import Literal

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
_FOLDS = 5
_NEIGHBOURS = 15


def correctly_classified(honest: Tensor, manipulated: Tensor, classifier: Classifier, *, seed: int) -> Tensor:
    """Share of each client's two updates that a classifier, trained on other clients' updates, recognises.

    Both updates of a client stay in one fold, so that it is not recognised by itself. Guessing gives 0.5.

    Args:
        honest: ``(N, P)`` updates from real features.
        manipulated: ``(N, P)`` updates of the same clients from manipulated ones.
        classifier: 15 nearest neighbours, a logistic regression, or a random forest, on standardised numbers. Where the
            two differ only in their spread about one centre, no line gets beyond 3/4, and the nearest neighbours of
            both kinds may all be of the narrower one; the forest is not bound by that.
        seed: seed of the forest.

    Returns:
        ``(N,)`` of 0, 0.5 and 1, cross-validated in five folds.
    """
    count = len(honest)
    truth = np.repeat([0, 1], count)
    found = cross_val_predict(
        make_pipeline(StandardScaler(), _build(classifier, seed)),
        torch.cat([honest, manipulated]).double().numpy(),
        truth,
        groups=np.tile(np.arange(count), 2),
        cv=GroupKFold(_FOLDS),
    )
    return torch.from_numpy(found == truth).double().reshape(2, count).mean(0)


def _build(classifier: Classifier, seed: int) -> BaseEstimator:
    if classifier == "logistic":
        return LogisticRegression(max_iter=1000)
    return KNeighborsClassifier(_NEIGHBOURS) if classifier == "knn" else RandomForestClassifier(random_state=seed)


def embeddings(
    honest: Tensor, manipulated: Tensor, perplexities: Sequence[float], *, seed: int
) -> dict[str, tuple[Tensor, Tensor]]:
    """t-SNE in two components of honest and manipulated updates together (RAIFLE, figure 7: "varying perplexity").

    Args:
        honest: ``(N, P)``.
        manipulated: ``(N, P)``.
        perplexities: one map for each.
        seed: seed of t-SNE.

    Returns:
        By title, ``(N, 2)`` places of the honest updates and ``(N, 2)`` of the manipulated ones.
    """
    both = torch.cat([honest, manipulated]).double().numpy()
    maps = {}
    for perplexity in perplexities:
        made = TSNE(n_components=2, perplexity=perplexity, init="pca", random_state=seed).fit_transform(both)
        places = torch.from_numpy(made)
        maps[f"perplexity {perplexity:g}"] = places[: len(honest)], places[len(honest) :]
    return maps
