"""Verdicts of a gate as JUnit XML, which CI systems show as tests."""

import contextlib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from fedleak.core.io.files import write_whole

NAME = "gate.xml"
_NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_ELEMENT = {"failed": "failure", "undecided": "error", "unchecked": "error"}
"""Element of each outcome that does not pass: a finding is a failure, the lack of one an error."""


def write_gate(directory: Path, verdicts: Sequence[Mapping[str, Any]]) -> None:
    """Writes gate.xml with a test case per limit, or removes that of an earlier run if there are no verdicts.

    A verdict has the fields of `fedleak.evaluation.gate.Verdict`.
    """
    path = directory / NAME
    if not verdicts:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            path.unlink()
        return
    directory.mkdir(parents=True, exist_ok=True)
    write_whole(path, gate_xml(verdicts))


def gate_xml(verdicts: Sequence[Mapping[str, Any]]) -> bytes:
    """Content of gate.xml."""
    verdicts = [{name: _printable(value) for name, value in verdict.items()} for verdict in verdicts]
    elements = [_ELEMENT.get(str(verdict["verdict"])) for verdict in verdicts]
    counts = {
        "tests": str(len(verdicts)),
        "failures": str(elements.count("failure")),
        "errors": str(elements.count("error")),
    }
    root = ElementTree.Element("testsuites", {"name": "fedleak", **counts})
    suite = ElementTree.SubElement(root, "testsuite", {"name": "gate", **counts, "skipped": "0"})
    for verdict, element in zip(verdicts, elements, strict=True):
        name = f"limit {verdict['limit']:g} on {verdict['metric']}"
        case = ElementTree.SubElement(suite, "testcase", classname="fedleak.gate", name=name, time="0")
        # A test case that passes has no element but its output.
        if element is None:
            ElementTree.SubElement(case, "system-out").text = verdict["message"]
        else:
            attributes = {"type": verdict["verdict"], "message": verdict["message"]}
            ElementTree.SubElement(case, element, attributes).text = verdict["message"]
    ElementTree.indent(root)
    return bytes(ElementTree.tostring(root, encoding="utf-8", xml_declaration=True))


def _printable(value: Any) -> Any:
    """A text without the characters that XML cannot hold; settings and names may be a stranger's."""
    if not isinstance(value, str):
        return value
    return _NO_XML.sub("\N{REPLACEMENT CHARACTER}", value)
