"""Blog Authorship Corpus: bloggers and the sentences of their posts."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from fedleak.core.errors import InputError, require
from fedleak.core.io.files import check_file, check_utf8
from fedleak.core.io.tables import TEXT, WHOLE, BadRows, Unparsable, matching, read_table
from fedleak.datamodules.devices.dates import blog_day, days_of
from fedleak.datamodules.devices.text import OwnedTextDataModule
from fedleak.datamodules.devices.tokenization import TokenizationOptions
from fedleak.datamodules.devices.user_filter import Posts, UserFilter, ranks_of
from fedleak.training.people import bands

_PAGE = "https://www.kaggle.com/datasets/rtatman/blog-authorship-corpus"
_WIKIREADING = "https://github.com/google-research-datasets/wiki-reading"
_FILE_NAME = re.compile(r"([0-9]{1,18})\.([^.]*)\.([^.]*)\.[^.]*\.([^.]*)\.xml")
"""Blogger, gender, age, topic and sign."""
_GENDERS = ("male", "female")
_SIGNS = (
    "Aries",
    "Taurus",
    "Gemini",
    "Cancer",
    "Leo",
    "Virgo",
    "Libra",
    "Scorpio",
    "Sagittarius",
    "Capricorn",
    "Aquarius",
    "Pisces",
)
_AGES = (20, 30)
"""First age of the second and of the third band; the corpus has no bloggers of 18 to 22 and of 28 to 32."""
_PERSON = {
    "gender": matching("|".join(_GENDERS), "male or female", _GENDERS.index),
    "age": WHOLE,
    "sign": matching("|".join(_SIGNS), "a sign of the zodiac", _SIGNS.index),
}
_DATE = "<date>"
_DATE_END = "</date>"
_POST = "<post>"
_POST_END = "</post>"
_NEXT = re.compile(f"{_POST}|{_DATE}")
_SPACE = re.compile(r"\s*")


class Blog(OwnedTextDataModule):
    """Blog Authorship Corpus, sentences of bloggers for the prediction of the next word.

    Size: 681,288 posts of 19,320 bloggers; the paper uses 454,090 sentences of 55. Dates in other languages than
    English are not read, but counted. Posts of one day are taken to be listed newest first.

    Files: ``root/blog/blogtext.csv`` from https://www.kaggle.com/datasets/rtatman/blog-authorship-corpus, or else the
    corpus' own files ``root/blog/blogs/*.xml``. Background: ``root/wikipedia/sentences.txt`` with one or more sentences
    per line, e.g. from WikiReading (the paper's), or ``root/blog/blogtext_background.csv``.

    Attributes of bloggers, in the same files: ``gender``, ``age`` (below 20, 20 to 29, from 30) and ``sign`` of the
    zodiac, which has nothing to do with what people write and is a control.

    Args:
        users: see `OwnedDataModule`; the paper's have at least 1,000 posts.
        background: source of background sentences, Wikipedia or posts of other bloggers.
        file: name of the CSV file with the users' posts.

    References:
        [Schler06].
    """

    name = "blog"
    folders = (name,)
    unit = "sentence"
    rated = False

    def __init__(
        self,
        *,
        users: UserFilter = UserFilter(fewest=1000),  # noqa: B008 - frozen
        text: TokenizationOptions = TokenizationOptions(),  # noqa: B008 - frozen
        background: Literal["wikipedia", "blog"] = "wikipedia",
        file: str = "blogtext.csv",
        **kwargs: Any,
    ) -> None:
        super().__init__(users=users, text=text, **kwargs)
        self.background_source = background
        self.file = file

    def read_posts(self) -> Posts:
        folder = self.data_root() / self.name
        path = folder / self.file
        if path.is_file() or self.file != "blogtext.csv":
            return read_blog_csv(path, bad_rows=self.bad_rows)
        return read_blog_xml(folder / "blogs", bad_rows=self.bad_rows)

    def read_attributes(self) -> dict[str, Tensor]:
        folder = self.data_root() / self.name
        path = folder / self.file
        if path.is_file() or self.file != "blogtext.csv":
            columns, _ = read_table(path, {"id": WHOLE, **_PERSON}, page=_PAGE, bad_rows=self.bad_rows)
        else:
            columns = _attributes_of_files(_xml_files(folder / "blogs"))
        # A blogger's attributes are those of the first row; rows come in the order of the ids, as the ranks do.
        _, first = np.unique(columns["id"], return_index=True)
        first_rows = torch.from_numpy(first)
        users = self.examples.owner_ids[self.client_users]  # ranks among all bloggers of the source
        attributes = {name: torch.tensor(columns[name])[first_rows][users] for name in _PERSON}
        attributes["age"] = bands(attributes["age"], _AGES)
        return attributes

    def background_texts(self) -> tuple[Sequence[str], Sequence[float]]:
        texts: Sequence[str]
        if self.background_source == "wikipedia":
            path = self.data_root() / "wikipedia" / "sentences.txt"
            check_file(path, f"{_WIKIREADING}, or take other text of Wikipedia, one sentence per line,")
            check_utf8(path)
            texts = [line for line in path.read_text(encoding="utf-8").split("\n") if line.strip()]
            require(texts, "sentences", f"an empty file at {path}", "Download it again.")
        else:
            path = self.data_root() / self.name / "blogtext_background.csv"
            texts = read_blog_csv(path, bad_rows=self.bad_rows).texts
        return texts, [0.0] * len(texts)


def read_blog_csv(path: Path, *, bad_rows: BadRows) -> Posts:
    """Posts of a CSV file with the columns id, gender, age, topic, sign, date and text."""
    kinds = {"id": WHOLE, "date": TEXT, "text": TEXT}
    columns, unparsable = read_table(path, kinds, page=_PAGE, bad_rows=bad_rows)
    return _posts(columns["id"], columns["date"], columns["text"], unparsable)


def read_blog_xml(folder: Path, *, bad_rows: BadRows) -> Posts:
    """Posts of the files ``BLOGGER.GENDER.AGE.TOPIC.SIGN.xml`` of a folder.

    The files are not XML: their text is not escaped, and has several encodings. Their tags are therefore searched as
    text, and content that is not UTF-8 is read as Windows-1252, which nearly all of it is.
    """
    ids: list[int] = []
    dates: list[str] = []
    texts: list[str] = []
    total = Unparsable()
    for path, file_name in _xml_files(folder):
        unparsable = Unparsable()
        for date, text in _entries(_decoded(path), unparsable):
            ids.append(int(file_name[1]))
            dates.append(date)
            texts.append(text)
        unparsable.refuse(path, "a complete post after every date", bad_rows)
        total.merge(unparsable)
    return _posts(ids, dates, texts, total)


def _xml_files(folder: Path) -> list[tuple[Path, re.Match[str]]]:
    """The corpus' own files with what their names say."""
    files = sorted(folder.glob("*.xml"))
    require(
        files,
        f"blogtext.csv or the corpus' XML files at {folder.parent}",
        "neither",
        f"Download the corpus from {_PAGE} and put blogtext.csv there, or its XML files into {folder}.",
    )
    named = []
    for path in files:
        file_name = _FILE_NAME.fullmatch(path.name)
        require(
            file_name,
            "files named like 5114.male.25.indUnk.Scorpio.xml",
            path,
            "Leave only the corpus' files in that folder.",
        )
        assert file_name is not None
        named.append((path, file_name))
    return named


def _attributes_of_files(files: Sequence[tuple[Path, re.Match[str]]]) -> dict[str, list[int]]:
    columns: dict[str, list[int]] = {"id": [int(file_name[1]) for _, file_name in files]}
    # The parts of a name are in the order of _PERSON, after the blogger.
    for part, (name, field) in enumerate(_PERSON.items(), 2):
        try:
            columns[name] = [field.convert(file_name[part]) for _, file_name in files]
        except ValueError as error:
            raise InputError(
                expected=f"{field.meaning} in every file's name",
                found=str(error),
                way_out="Leave only the corpus' files in that folder.",
            ) from None
    return columns


def _entries(content: str, unparsable: Unparsable) -> Iterator[tuple[str, str]]:
    """Date and text of every post of a file, in one pass: a post ends with its last end tag before the next begins."""
    end = 0
    line = 1
    counted = 0  # up to here, ends of lines are counted in `line`
    while (begin := content.find(_DATE, end)) >= 0 and (close := content.find(_DATE_END, begin)) >= 0:
        end = close + len(_DATE_END)
        text = _post_at(content, end)
        if text is None:
            line += content.count("\n", counted, begin)
            counted = begin
            unparsable.add(line)
        else:
            yield content[begin + len(_DATE) : close], text.strip()


def _post_at(content: str, position: int) -> str | None:
    """The post that begins after a position; None if something else does, or it has no end."""
    space = _SPACE.match(content, position)
    begin = position if space is None else space.end()
    if not content.startswith(_POST, begin):
        return None
    begin += len(_POST)
    # Posts may hold tags, even </post>: the last one before the next entry ends the post.
    following = _NEXT.search(content, begin)
    limit = len(content) if following is None else following.start()
    close = content.rfind(_POST_END, begin, limit)
    if close < 0:
        return None
    return content[begin:close]


def _decoded(path: Path) -> str:
    content = path.read_bytes()
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        return content.decode("cp1252", errors="replace")


def _posts(ids: list[int], dates: list[str], texts: list[str], unparsable: Unparsable) -> Posts:
    """From the last to the first: both forms list a blogger's newest post first."""
    return Posts(
        texts=texts[::-1],
        owners=ranks_of(ids)[::-1].copy(),
        days=days_of(reversed(dates), blog_day),
        labels=np.zeros(len(texts), np.float32),
        unparsable=unparsable,
    )
