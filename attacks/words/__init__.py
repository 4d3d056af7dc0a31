"""Attacks on the words of texts: which words does a client's text have, and how often?"""

from typing import TYPE_CHECKING

from fedleak.core.exports import attach

if TYPE_CHECKING:
    from fedleak.attacks.words.baselines import PopularWords as PopularWords
    from fedleak.attacks.words.next_words import NextWords as NextWords
    from fedleak.attacks.words.touched_rows import TouchedRows as TouchedRows
else:
    __getattr__, __dir__, __all__ = attach(
        __name__,
        {
            "PopularWords": "fedleak.attacks.words.baselines",
            "NextWords": "fedleak.attacks.words.next_words",
            "TouchedRows": "fedleak.attacks.words.touched_rows",
        },
    )
