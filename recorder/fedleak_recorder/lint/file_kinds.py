"""What bytes are, by how they begin."""

import functools

PICKLE = "a pickle"
ARCHIVE = "an archive"
TREES = "trees"
_BEGINNINGS = (
    (b"\x89PNG\r\n", "an image (PNG)"),
    (b"\xff\xd8\xff", "an image (JPEG)"),
    (b"GIF8", "an image (GIF)"),
    (b"BM\x00\x00", "an image (BMP)"),
    (b"II*\x00", "an image (TIFF)"),
    (b"MM\x00*", "an image (TIFF)"),
    (b"RIFF", "a sound or an image (RIFF)"),
    (b"OggS", "a sound (Ogg)"),
    (b"fLaC", "a sound (FLAC)"),
    (b"ID3", "a sound (MP3)"),
    (b"%PDF-", "a document (PDF)"),
    (b"PAR1", "a table (Parquet)"),
    (b"ARROW1", "a table (Arrow)"),
    (b"SQLite format 3\x00", "a data base (SQLite)"),
    (b"\x89HDF\r\n", "a file of arrays (HDF5)"),
    (b"PK\x03\x04", ARCHIVE),
    (b"\x1f\x8b", ARCHIVE),
    (b"BZh", ARCHIVE),
    (b"\xfd7zXZ", ARCHIVE),
    (b"7z\xbc\xaf", ARCHIVE),
    (b"\x28\xb5\x2f\xfd", ARCHIVE),
    (b"{L\x00\x00\x00\x00", TREES),  # XGBoost's UBJ begins with an object, the length of whose first key has 8 bytes
    (b"tree\nversion=", TREES),  # LightGBM
)
_DICOM_AT = 128
_TAR_AT = 257
_FEWEST = 16
"""Bytes from which on readable ones are a text and no chance."""
_LOOKED_AT = 2**14


@functools.lru_cache(maxsize=64)
def kind_of(content: bytes) -> str:
    """What bytes are, in words; empty if they are numbers or unknown.

    >>> kind_of(b"The patient was seen on Monday."), kind_of(bytes(range(200, 240)))
    ('a readable text', '')
    """
    for beginning, kind in _BEGINNINGS:
        if content.startswith(beginning):
            return kind
    if content[_DICOM_AT : _DICOM_AT + 4] == b"DICM":
        return "an image (DICOM)"
    if content[_TAR_AT : _TAR_AT + 5] == b"ustar":
        return ARCHIVE
    if _is_pickle(content):
        return PICKLE
    return _text_kind(content)


def _is_pickle(content: bytes) -> bool:
    """Whether bytes begin and end as a pickle of protocol 2 to 5 does."""
    return len(content) > 3 and content[0] == 0x80 and 2 <= content[1] <= 5 and content[-1:] == b"."


def _text_kind(content: bytes) -> str:
    """What readable bytes are; empty if they are not readable."""
    first = content[:_LOOKED_AT]
    if len(first) < _FEWEST:
        return ""
    # The cut may have divided a character of several bytes.
    text = first.decode("utf-8", "ignore")
    if len(text.encode()) < len(first) - 3:
        return ""
    readable = sum(character.isprintable() or character in "\n\r\t" for character in text)
    if readable < 0.97 * len(text) or len(set(text)) < 4:
        return ""
    beginning = text.lstrip()[:1]
    if beginning not in ("{", "["):
        return "a readable text"
    if '"gradient_booster"' in text or '"learner"' in text or '"oblivious_trees"' in text or '"tree_structure"' in text:
        return TREES
    return "JSON"
