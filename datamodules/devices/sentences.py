"""Text -> sentences -> words.

The paper's examples are a post's sentences (section 5, Blog) and its models were built with Keras, whose tokeniser
lower-cases, drops punctuation and splits at what is left; so do these. No language model and no list is behind them.
"""

import html
import re

_SENTENCE_END = re.compile(r"(?<=[.!?])[\"')\]]*\s+|\n+|\s{3,}")
"""A full stop, question or exclamation mark before a space; a line's end; the run of spaces that Kaggle's file of the
Blog corpus has in place of an empty line."""
_WORD = re.compile(r"[^\W_]+(?:'[^\W_]+)*")
"""Letters and digits of any script, with apostrophes between them."""


def sentences_of(text: str) -> list[str]:
    r"""The sentences of a text, and among them possibly empty ones.

    >>> sentences_of('He left. "Why?" Nobody knew!\nThe end')
    ['He left.', '"Why?', 'Nobody knew!', 'The end']
    """
    return _SENTENCE_END.split(text)


def words_of(text: str) -> list[str]:
    """The words of a text, in lower case and without punctuation.

    >>> words_of("Don't panic &amp; CARRY-on, 2 days")
    ["don't", 'panic', 'carry', 'on', '2', 'days']
    """
    plain = html.unescape(text) if "&" in text else text
    return _WORD.findall(plain.lower().replace("\u2019", "'"))
