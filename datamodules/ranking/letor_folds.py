"""The folder of a data set of LETOR's: five folds, each with a file for training, validation and test."""

from pathlib import Path
from typing import Literal

from protocol.errors import InputError

FOLDS = 5


def check_fold(fold: int) -> int:
    """The number of a fold.

    Raises:
        InputError: there is no such fold.
    """
    if not 1 <= fold <= FOLDS:
        raise InputError(expected=f"a fold from 1 to {FOLDS}", found=str(fold), way_out="The papers use fold 1.")
    return fold


def fold_file(folder: Path, fold: int, part: Literal["train", "test"]) -> Path:
    """A file of a fold, as the data set's owners lay it out."""
    return folder / f"Fold{fold}" / f"{part}.txt"
