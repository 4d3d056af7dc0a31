"""SVG of a stranger, written anew from the elements and attributes that drawings need, so that it runs nothing.

A browser that opens an SVG file runs its scripts and loads what it refers to. What a drawing of matplotlib holds is a
short list, and only what is on it is written: nothing of the original text is kept but names, numbers and texts that
were parsed and are escaped again.
"""

import re
from xml.etree import ElementTree

_SVG = "http://www.w3.org/2000/svg"
"""Namespace of SVG."""
_XLINK = "http://www.w3.org/1999/xlink"
"""Namespace of its references."""
_ELEMENTS = frozenset(
    {
        *("svg", "defs", "g", "title", "desc", "style", "clipPath", "mask", "pattern", "symbol", "use", "image"),
        *("path", "rect", "circle", "ellipse", "line", "polyline", "polygon", "text", "tspan"),
        *("linearGradient", "radialGradient", "stop"),
    }
)
"""Elements that only draw; no script, foreignObject, link, animation, filter or handler."""
_DROPPED = frozenset({"metadata"})
"""Element that is left out with all below it: it describes the file in RDF."""
_ATTRIBUTES = frozenset(
    {
        *("id", "class", "style", "transform", "version", "viewBox", "width", "height", "preserveAspectRatio"),
        *("x", "y", "x1", "x2", "y1", "y2", "dx", "dy", "cx", "cy", "r", "rx", "ry", "d", "points", "type"),
        *("fill", "fill-opacity", "fill-rule", "stroke", "stroke-width", "stroke-opacity", "stroke-dasharray"),
        *("stroke-linecap", "stroke-linejoin", "stroke-miterlimit", "opacity", "clip-path", "clip-rule", "mask"),
        *("font-size", "font-family", "font-style", "font-weight", "text-anchor", "offset", "stop-color"),
        *("stop-opacity", "gradientUnits", "gradientTransform", "patternUnits", "clipPathUnits", "maskUnits"),
        *("data-client",),
    }
)
_INSIDE = re.compile(r"#[\w.:-]+")
"""Reference to an element of the same file."""
_PICTURE = re.compile(r"data:image/png;base64,[A-Za-z0-9+/=\s]*")
"""Picture that is part of the file itself; a PNG holds no script."""
_FUNCTION = re.compile(r"([\w-]*)\s*\(([^)]*)")
"""Function in a style or an attribute, with what stands in its parentheses; a browser closes them at the end."""
_FUNCTIONS = frozenset({"matrix", "rotate", "scale", "skewX", "skewY", "translate", "rgb", "rgba", "url"})
_LARGEST = 2**25
"""Bytes of the largest SVG that is read."""


class UnsafeError(ValueError):
    """An SVG that does more than draw; the message has what it holds."""


def safe_svg(content: bytes) -> bytes:
    """The SVG, written anew.

    >>> safe_svg(b'<svg xmlns="http://www.w3.org/2000/svg" width="1"><g/></svg>')
    b'<svg xmlns="http://www.w3.org/2000/svg" width="1"><g /></svg>'

    Raises:
        UnsafeError: it is no SVG, or holds an element, an attribute or a reference that no drawing needs.
    """
    if len(content) > _LARGEST:
        raise UnsafeError(f"{len(content)} bytes")
    try:
        text = content.decode()
    except UnicodeDecodeError:
        raise UnsafeError("text that is no UTF-8") from None
    # The declaration of a file names a grammar elsewhere; in what follows, there may be no other, which could define
    # entities.
    text = text[max(text.find("<svg"), 0) :]
    if "<!DOCTYPE" in text.upper() or "<!ENTITY" in text.upper():
        raise UnsafeError("a declaration of entities")
    try:
        root = ElementTree.fromstring(text)
    except (ElementTree.ParseError, ValueError) as error:
        raise UnsafeError(f"no SVG ({error})") from None
    if root.tag != f"{{{_SVG}}}svg":
        raise UnsafeError("no SVG")
    _clean(root)
    ElementTree.register_namespace("", _SVG)
    ElementTree.register_namespace("xlink", _XLINK)
    return ElementTree.tostring(root, encoding="unicode").encode()


def _clean(root: ElementTree.Element) -> None:
    """Checks an element and all below it, and drops what only describes the file."""
    waiting = [root]
    while waiting:
        element = waiting.pop()
        name = _local(element.tag, _SVG)
        if name not in _ELEMENTS:
            raise UnsafeError(f"the element {name[:40]!r}")
        for key, value in element.attrib.items():
            _check_attribute(name, key, value)
        for child in list(element):
            if isinstance(child.tag, str) and _local(child.tag, _SVG) in _DROPPED:
                element.remove(child)
        if name == "style":
            if len(element):  # a browser would join the texts around it
                raise UnsafeError("an element in a style")
            _check_style(element.text or "")
        waiting += list(element)


def _check_attribute(element: str, key: str, value: str) -> None:
    local = _local(key, _XLINK) if key.startswith("{") else key
    if local == "href":
        if _INSIDE.fullmatch(value) or (element == "image" and _PICTURE.fullmatch(value)):
            return
        raise UnsafeError(f"a reference to {value[:40]!r}")
    if key.startswith("{") or local not in _ATTRIBUTES:
        raise UnsafeError(f"the attribute {local[:40]!r}")
    _check_style(value)


def _check_style(text: str) -> None:
    """Checks that a style, or an attribute that may hold one, refers to nothing outside the file.

    An escape could spell a function, and a comment could hide one, so neither may stand there.
    """
    if "\\" in text or "/*" in text or "@" in text:
        raise UnsafeError("an escape, a comment or an import in a style")
    for name, inside in _FUNCTION.findall(text):
        if name not in _FUNCTIONS:
            raise UnsafeError(f"the function {name[:40]!r} in a style")
        if name == "url" and not _INSIDE.fullmatch(inside.strip().strip("'\"")):
            raise UnsafeError(f"a reference to {inside[:40]!r}")


def _local(name: object, namespace: str) -> str:
    """Name without its namespace; the whole name if that is another, or if it is no element."""
    text = name if isinstance(name, str) else "comment"
    return text.removeprefix(f"{{{namespace}}}")
