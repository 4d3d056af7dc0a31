"""Small tokenizers, as files of a network's folder."""

from pathlib import Path

from tokenizers import AddedToken, Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing

WORDS = ("the", "cat", "sat", "on", "a", "mat")


def write_tokens(folder: Path, *, special: tuple[str, ...], first: tuple[str, ...] = (), around: bool = False) -> Path:
    """Tokens of `first`, `special` and WORDS from number 0 on, perhaps with [CLS] and [SEP] around every text."""
    names = list(dict.fromkeys([*first, *special, *WORDS, "[UNK]"]))
    tokenizer = Tokenizer(WordLevel({name: number for number, name in enumerate(names)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.add_special_tokens([AddedToken(name, special=True) for name in special])
    if around:
        numbers = [(name, names.index(name)) for name in ("[CLS]", "[SEP]")]
        tokenizer.post_processor = TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=numbers)
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder
