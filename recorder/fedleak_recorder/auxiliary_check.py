"""Checks of the server's auxiliary data: shapes, types and values, and that arrays that belong together all exist."""

from collections.abc import Mapping
from typing import Any

from fedleak_recorder.arrays import Array, as_array
from fedleak_recorder.format import (
    ATTRIBUTE,
    ATTRIBUTE_PSEUDONYMS,
    CANDIDATE_LABELS,
    CANDIDATES,
    HOLDOUT_USERS,
    POPULARITY_OF_OTHERS,
)
from fedleak_recorder.tensor_checks import check_attribute, check_distinct, check_numbers, need, whole_numbers

_IMAGES = ("images", "labels")
_KNOWN = ("known_pseudonyms", "known_users")
_PRIOR = ("prior_features", "prior_labels", "prior_users")
_TOGETHER = (_IMAGES, _KNOWN, _PRIOR, (CANDIDATES, CANDIDATE_LABELS))
"""Tensors of which all are there or none, with one length: the n-th rows of all are about the same."""
_DIMENSIONS = {
    **dict.fromkeys(("labels", *_KNOWN, "prior_users", HOLDOUT_USERS, CANDIDATE_LABELS), 1),
    POPULARITY_OF_OTHERS: 2,
    "public_interactions": 2,
}
"""Auxiliary tensors of whole numbers, with their numbers of dimensions."""


def check_auxiliary(tensors: Mapping[str, Any]) -> None:
    """Checks auxiliary data."""
    auxiliary = {name: as_array(value) for name, value in tensors.items()}
    for name, value in auxiliary.items():
        check_numbers(name, value)
        need(value.ndim, f"{name!r} without a dimension")
    if "images" in auxiliary:
        images = auxiliary["images"]
        are_records = images.ndim > 1 and images.size
        shape = tuple(images.shape)
        need(are_records, f"'images' of shape {shape}, not (M, channels, height, width) or (M, features)")
    # Labels alone, say, would be attached to nothing.
    for group in _TOGETHER:
        lengths = [len(auxiliary[name]) for name in group if name in auxiliary]
        is_complete = not lengths or (len(lengths) == len(group) and len(set(lengths)) == 1)
        need(is_complete, f"not one length, or not all, of {', '.join(group)}")
    for name, dimensions in _DIMENSIONS.items():
        if name in auxiliary:
            whole_numbers(name, auxiliary[name], dimensions)
    if "known_pseudonyms" in auxiliary:
        check_distinct("known_pseudonyms", auxiliary["known_pseudonyms"])
    _check_attributes(auxiliary)
    if POPULARITY_OF_OTHERS in auxiliary:
        need(auxiliary[POPULARITY_OF_OTHERS].size, f"{POPULARITY_OF_OTHERS!r} without numbers")


def _check_attributes(auxiliary: Mapping[str, Array]) -> None:
    """Checks the attributes of people whom the server knows: a value of each attribute for each pseudonym."""
    names = [name for name in auxiliary if name == ATTRIBUTE_PSEUDONYMS or name.startswith(ATTRIBUTE)]
    if not names:
        return
    lengths = {len(auxiliary[name]) for name in names}
    is_complete = ATTRIBUTE_PSEUDONYMS in names and len(lengths) == 1
    need(is_complete, f"attributes of people without {ATTRIBUTE_PSEUDONYMS!r}, or not of one length")
    pseudonyms = whole_numbers(ATTRIBUTE_PSEUDONYMS, auxiliary[ATTRIBUTE_PSEUDONYMS], 1)
    check_distinct(ATTRIBUTE_PSEUDONYMS, pseudonyms)
    for name in names:
        if name != ATTRIBUTE_PSEUDONYMS:
            check_attribute(name, auxiliary[name], 1)
