"""Reading the Blog Authorship Corpus (Schler 2006): Kaggle's CSV file, or the corpus' own XML files."""

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from datamodules.devices.csv_rows import BadRows, Unparsable, read_csv
from datamodules.devices.dates import blog_day, days_of
from datamodules.devices.user_filter import Posts, ranks_of
from protocol.errors import InputError

PAGE = "https://www.kaggle.com/datasets/rtatman/blog-authorship-corpus"
_COLUMNS = {"id": r"[0-9]{1,18}", "date": None, "text": None}
_NAME = re.compile(r"([0-9]{1,18})\.[^.]*\.[^.]*\.[^.]*\.[^.]*\.xml")
"""Blogger, gender, age, topic and sign."""
_DATE, _DATE_END, _POST, _POST_END = "<date>", "</date>", "<post>", "</post>"
_NEXT = re.compile(f"{_POST}|{_DATE}")
_SPACE = re.compile(r"\s*")


def read_blog_csv(path: Path, *, bad_rows: BadRows) -> Posts:
    """Posts of a CSV file with the columns id, gender, age, topic, sign, date and text.

    Args:
        path: the file.
        bad_rows: what to do with rows that cannot be read.

    Raises:
        InputError: see `datamodules.devices.csv_rows.read_csv`.
    """
    columns, unparsable = read_csv(path, _COLUMNS, page=PAGE, bad_rows=bad_rows)
    return _posts(columns["id"], columns["date"], columns["text"], unparsable)


def read_blog_xml(folder: Path, *, bad_rows: BadRows) -> Posts:
    """Posts of the files ``BLOGGER.GENDER.AGE.TOPIC.SIGN.xml`` of a folder.

    They are no XML: their text is not escaped, and of several encodings. So their tags are looked for as they stand,
    and what is not UTF-8 is read as Windows-1252, which nearly all of it is.

    Args:
        folder: where they are.
        bad_rows: what to do with dates without a whole post.

    Raises:
        InputError: there is none, one has another name, or a post is not whole.
    """
    files = sorted(folder.glob("*.xml"))
    if not files:
        raise InputError(
            expected=f"blogtext.csv or the corpus' XML files at {folder.parent}",
            found="neither",
            way_out=f"Fetch the corpus from {PAGE} and put blogtext.csv there, or its XML files into {folder}.",
        )
    ids, dates, texts = list[str](), list[str](), list[str]()
    total = Unparsable()
    for path in files:
        found = _NAME.fullmatch(path.name)
        if found is None:
            raise InputError(
                expected="files named like 5114.male.25.indUnk.Scorpio.xml",
                found=str(path),
                way_out="Leave only the corpus' files in that folder.",
            )
        unparsable = Unparsable()
        for date, text in _entries(_decoded(path), unparsable):
            ids.append(found[1])
            dates.append(date)
            texts.append(text)
        unparsable.refuse(path, "a whole post after every date", bad_rows)
        total.merge(unparsable)
    return _posts(ids, dates, texts, total)


def _entries(content: str, unparsable: Unparsable) -> Iterator[tuple[str, str]]:
    """Date and text of every post of a file, in one pass: a post ends with its last end before the next begins."""
    end, line, counted = 0, 1, 0
    while (begin := content.find(_DATE, end)) >= 0 and (close := content.find(_DATE_END, begin)) >= 0:
        end = close + len(_DATE_END)
        text = _post_at(content, end)
        if text is None:
            line, counted = line + content.count("\n", counted, begin), begin
            unparsable.add(line)
        else:
            yield content[begin + len(_DATE) : close], text.strip()


def _post_at(content: str, place: int) -> str | None:
    """The post that begins behind a place, None where another thing does or it has no end."""
    space = _SPACE.match(content, place)
    begin = place if space is None else space.end()
    if not content.startswith(_POST, begin):
        return None
    begin += len(_POST)
    following = _NEXT.search(content, begin)
    close = content.rfind(_POST_END, begin, len(content) if following is None else following.start())
    return None if close < 0 else content[begin:close]


def _decoded(path: Path) -> str:
    content = path.read_bytes()
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        return content.decode("cp1252", errors="replace")


def _posts(ids: list[str], dates: list[str], texts: list[str], unparsable: Unparsable) -> Posts:
    """From the last to the first: both forms list a blogger's newest post first."""
    return Posts(
        texts=texts[::-1],
        owners=ranks_of(ids, numeric=True)[::-1].copy(),
        days=days_of(reversed(dates), blog_day),
        labels=np.zeros(len(texts), np.float32),
        unparsable=unparsable.count,
        lines=tuple(unparsable.lines),
    )
