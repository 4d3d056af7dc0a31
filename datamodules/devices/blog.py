"""Blog (Schler 2006): bloggers, and the next word of their sentences."""

from collections.abc import Sequence
from typing import Any, Literal

from datamodules.devices.background_files import read_wikipedia
from datamodules.devices.blog_files import read_blog_csv, read_blog_xml
from datamodules.devices.text import OwnedTextDataModule
from datamodules.devices.tokenization import TextOptions
from datamodules.devices.user_filter import Posts, UserFilter


class Blog(OwnedTextDataModule):
    """Sentences of bloggers; the whole corpus has 681,288 posts of 19,320, the paper's part 454,090 sentences of 55.

    Reads ``root/blog/blogtext.csv`` (Kaggle), or else the corpus' own files ``root/blog/blogs/*.xml``. Dates in another
    language than English are not read, and counted. Posts of one day are taken to be listed newest first. The other
    arguments are those of `OwnedTextDataModule`.

    Args:
        users: see `OwnedDataModule`; the paper's have at least 1,000 posts.
        text: see `OwnedTextDataModule`.
        background: ``wikipedia``: ``root/wikipedia/sentences.txt`` (the paper's); ``blog``: other bloggers' posts in
            ``root/blog/blogtext_background.csv``.
    """

    name = "blog"
    folders = (name,)
    unit = "sentence"
    rated = False

    def __init__(
        self,
        *,
        users: UserFilter = UserFilter(fewest=1000),  # noqa: B008 - frozen
        text: TextOptions = TextOptions(),  # noqa: B008 - frozen
        background: Literal["wikipedia", "blog"] = "wikipedia",
        **kwargs: Any,
    ) -> None:
        super().__init__(users=users, text=text, **kwargs)
        self.background_source = background

    def read_posts(self) -> Posts:
        folder = self.data_root() / self.name
        path = folder / "blogtext.csv"
        if path.is_file():
            return read_blog_csv(path, bad_rows=self.bad_rows)
        return read_blog_xml(folder / "blogs", bad_rows=self.bad_rows)

    def background_texts(self) -> tuple[Sequence[str], Sequence[float]]:
        if self.background_source == "wikipedia":
            texts: Sequence[str] = read_wikipedia(self.data_root())
        else:
            path = self.data_root() / self.name / "blogtext_background.csv"
            texts = read_blog_csv(path, bad_rows=self.bad_rows).texts
        return texts, [0.0] * len(texts)
