"""Text of people who take no part: Wikipedia's sentences, Amazon's reviews, other bloggers (table 6)."""

from pathlib import Path

from datamodules.devices.csv_rows import BadRows, check_file, read_csv
from datamodules.recommendation.ratings_csv import check_encoding
from protocol.errors import InputError

_WIKIREADING = "https://github.com/google-research-datasets/wiki-reading"
_AMAZON = "https://www.kaggle.com/datasets/eswarchandt/amazon-music-reviews"


def read_wikipedia(root: Path) -> list[str]:
    """The lines of ``root/wikipedia/sentences.txt``, one sentence or more in each.

    Raises:
        InputError: the file is missing, empty or not in UTF-8.
    """
    path = root / "wikipedia" / "sentences.txt"
    check_file(path, f"{_WIKIREADING}, or take another text of Wikipedia, one sentence in a line,")
    check_encoding(path, "utf-8")
    lines = [line for line in path.read_text(encoding="utf-8").split("\n") if line.strip()]
    if not lines:
        raise InputError(expected="sentences", found=f"an empty file at {path}", way_out="Fetch it again.")
    return lines


def read_amazon(root: Path, *, bad_rows: BadRows) -> tuple[list[str], list[float]]:
    """Texts and stars from 1 to 5 of the CSV files in ``root/amazon/``, in the order of their names.

    Raises:
        InputError: there is no such file, or see `datamodules.devices.csv_rows.read_csv`.
    """
    folder = root / "amazon"
    files = sorted(folder.glob("*.csv"))
    if not files:
        raise InputError(
            expected=f"Amazon reviews as CSV files in {folder}",
            found="none",
            way_out=f"Fetch some, with the columns reviewText and overall, e.g. from {_AMAZON}.",
        )
    texts, stars = list[str](), list[float]()
    for path in files:
        columns, _ = read_csv(path, {"reviewText": None, "overall": r"[1-5](\.0*)?"}, page=_AMAZON, bad_rows=bad_rows)
        texts += columns["reviewText"]
        stars += map(float, columns["overall"])
    return texts, stars
