"""What a stranger's SVG may hold."""

import pytest

from fedleak.evaluation.safe_svg import UnsafeError, safe_svg

START = '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" width="10pt"'
DRAWN = (
    f'{START} viewBox="0 0 1 1"><metadata><a href="http://x"/></metadata><defs>'
    '<style type="text/css">*{stroke-linejoin: round}</style><clipPath id="p1"><rect x="1"/></clipPath></defs>'
    '<g id="a" clip-path="url(#p1)"><path d="M 0 1 L 1 1 z" style="fill: #fff; stroke: url(#p1)"/>'
    '<use xlink:href="#a" x="1"/><image xlink:href="data:image/png;base64,iVBOR=="/>'
    '<text transform="rotate(-90 1 2)">a &lt;b&gt; &amp; c</text><title>t</title></g></svg>'
)
HOSTILE = {
    "script": "<script>alert(1)</script>",
    "a script of another case": "<SCRIPT>alert(1)</SCRIPT>",
    "a script of another namespace": '<s:script xmlns:s="http://www.w3.org/1999/xhtml">alert(1)</s:script>',
    "a handler": '<g onload="alert(1)"/>',
    "a handler of another case": '<g oNcLiCk="alert(1)"/>',
    "HTML": "<foreignObject><iframe src='http://x'/></foreignObject>",
    "an element of HTML": '<h:img xmlns:h="http://www.w3.org/1999/xhtml" src="x"/>',
    "a link": '<a xlink:href="javascript:alert(1)"><path/></a>',
    "an animation of a reference": '<animate attributeName="href" values="javascript:alert(1)"/>',
    "a set": '<set attributeName="onclick" to="alert(1)"/>',
    "an image elsewhere": '<image xlink:href="http://127.0.0.1/x.png"/>',
    "an image without a namespace": '<image href="//127.0.0.1/x.png"/>',
    "a file": '<image xlink:href="file:///etc/passwd"/>',
    "an SVG in an image": '<image xlink:href="data:image/svg+xml;base64,AAAA"/>',
    "a use of another file": '<use xlink:href="http://x/y.svg#a"/>',
    "an import": "<style>@import 'http://x'</style>",
    "an image in a style": "<style>*{background: url(http://x)}</style>",
    "an escape in a style": "<style>*{background: u\\72l(http://x)}</style>",
    "a comment in a style": "<style>*{background: url/**/(http://x)}</style>",
    "a style that is not closed": '<g style="fill: url(http://x"/>',
    "another function": "<g style=\"background: image-set('http://x' 1x)\"/>",
    "an attribute with a reference": '<g fill="url(http://x#a)"/>',
    "a base": '<g xml:base="http://x"/>',
    "a style sheet": '<link rel="stylesheet" href="http://x"/>',
    "a filter": '<filter id="f"><feImage href="http://x"/></filter>',
    "style in parts": '<style>a<title/>@import "http://x"</style>',
    "style after an element": "<style><g/>*{background:url(http://x)}</style>",
}


def test_a_drawing_stays_what_it_is() -> None:
    made = safe_svg(DRAWN.encode())
    assert b"metadata" not in made
    for part in (
        b"M 0 1 L 1 1 z",
        b"url(#p1)",
        b'xlink:href="#a"',
        b"data:image/png",
        b"a &lt;b&gt; &amp; c",
        b"<title>t",
    ):
        assert part in made
    assert safe_svg(made) == made
    assert safe_svg(b"<?xml version='1.0'?><!DOCTYPE svg PUBLIC 'x' 'http://x'>" + DRAWN.encode()) == made


@pytest.mark.parametrize("inside", HOSTILE.values(), ids=HOSTILE)
def test_what_runs_or_loads_anything_is_refused(inside: str) -> None:
    with pytest.raises(UnsafeError):
        safe_svg(f"{START}>{inside}</svg>".encode())


@pytest.mark.parametrize(
    "text",
    [
        "",
        "<html/>",
        "<svg/>",
        f"{START}></svg><script>alert(1)</script>",
        f"{START} onload='alert(1)'/>",
        f'{START}><!DOCTYPE a [<!ENTITY b "c">]></svg>',
        f"{START}>",
    ],
)
def test_what_is_no_svg_is_refused(text: str) -> None:
    with pytest.raises(UnsafeError):
        safe_svg(text.encode())
    with pytest.raises(UnsafeError):
        safe_svg(b"\xff\xfe" + text.encode())


def test_comments_and_instructions_are_not_written_again() -> None:
    assert b"stylesheet" not in safe_svg(f"{START}><!-- stylesheet --><?a stylesheet?></svg>".encode())
