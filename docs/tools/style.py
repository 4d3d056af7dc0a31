"""How much a reader of the code must hold: counts for each room, beside those of nine well-kept code bases.

    python -m docs.tools.style                  # the table, as `make style` prints it
    python -m docs.tools.style FOLDER_OR_FILE   # the same counts for any Python code, ours or another's
    python -m docs.tools.style --functions PATH # each function of PATH with vague names, or that packs much

The counts are a mirror, no goal: a name is not better for being on no list. `tests/docs/tools/test_style.py` holds only
the number of vague names that live long, which may fall and never rises.
"""

import argparse
import ast
import io
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from docs.tools.attack_pages import table

ROOT = Path(__file__).resolve().parents[2]

ROOMS = {
    "attacks": ("attacks",),
    "evaluation": ("fedleak/evaluation",),
    "reports": ("fedleak/reports",),
    "commands, tables": ("fedleak/commands", "fedleak/tables"),
    "client, training, modules, callbacks": ("fedleak/client", "fedleak/training", "modules", "callbacks"),
    "core, recordings, datamodules": ("fedleak/core", "fedleak/recordings", "datamodules"),
    "server, defenses": ("fedleak/server", "fedleak/defenses"),
    "recorder, guard": ("recorder", "guard", "fedleak/guard_checks"),
}
"""Folders of the source by room, without tests, benchmarks and tools of the documentation."""

ORIGIN_NAMES = frozenset({"one", "here", "own", "found", "made", "kept"})
"""Names that say where a thing came from, not what it is: no harm in three lines, a riddle in thirty."""

VAGUE_NAMES = ORIGIN_NAMES - {"here"} | {
    "asked",
    "given",
    "held",
    "known",
    "left",
    "line",
    "lines",
    "other",
    "others",
    "place",
    "places",
    "right",
    "said",
    "seen",
    "told",
    "whole",
}
"""Names that leave open what a thing is. Some have an honest use, e.g. a line of a text file."""

SHORT_LIFE = 3
"""Lines over which a name of `ORIGIN_NAMES` does no harm: its origin is still on the screen's same spot."""

PEERS = {
    "torchgeo": (6.8, 4.9, 0.5, 1.0, 0.2, 1),
    "torchmetrics": (7.9, 10.2, 1.2, 1.0, 0.2, 796),
    "LeakPro": (8.1, 10.0, 1.0, 1.0, 0.0, 7),
    "opacus": (6.4, 9.8, 0.4, 0.9, 0.1, 18),
    "imbalanced-learn": (6.7, 7.3, 0.1, 0.7, 0.1, 41),
    "fedjax": (8.2, 10.1, 0.2, 1.0, 0.2, 0),
    "pfl-research": (6.8, 6.7, 0.6, 1.5, 0.1, 3),
    "breaching": (9.2, 8.5, 0.7, 1.5, 0.1, 2),
    "foolbox": (7.3, 7.7, 0.1, 0.4, 0.4, 2),
}
"""Tokens a line; comments, conditional expressions, comprehensions for 100 lines; % of vague names; docstrings with an
example. Counted as here, in the source as of 2026 (torchgeo 65507dc, torchmetrics dab0333, LeakPro c47752f, opacus
4d0ebc8, imbalanced-learn 8504e95, fedjax c57ee19, pfl-research c9d1f32, breaching 8bd99d5, foolbox 2513a9a)."""

HEADER = (
    "",
    "lines of code",
    "tokens a line",
    "comments",
    "if-expressions",
    "comprehensions",
    "vague names, %",
    "live long",
    "examples",
)

_Function = ast.FunctionDef | ast.AsyncFunctionDef
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_SAID_TO_TOOLS = ("noqa", "type: ignore", "Copyright", "License", "SPDX")


@dataclass
class Counts:
    """What a reader meets in some files.

    Args:
        code_lines: lines that are neither empty nor of a docstring. An empty line within a docstring is subtracted
            twice, as it was when the peers were counted.
        token_lines: lines on which names, numbers, texts or operators stand.
        tokens: of these lines.
        comments: without those that speak to a tool.
        conditionals: expressions ``a if b else c``.
        comprehensions: of lists, sets, dictionaries and generators.
        assigned_names: how often a local name is assigned.
        vague: how often that name is one of `VAGUE_NAMES`.
        examples: docstrings in which an example runs.
        long_lived: places ``file:line name in function`` at which a name of `ORIGIN_NAMES` begins to live long.
    """

    code_lines: int = 0
    token_lines: int = 0
    tokens: int = 0
    comments: int = 0
    conditionals: int = 0
    comprehensions: int = 0
    assigned_names: int = 0
    vague: int = 0
    examples: int = 0
    long_lived: list[str] = field(default_factory=list)

    def row(self, title: str) -> tuple[str, ...]:
        """A row of the table, with counts for 100 lines of code."""
        hundreds = max(self.code_lines, 1) / 100
        return (
            title,
            f"{self.code_lines:,}",
            f"{self.tokens / max(self.token_lines, 1):.1f}",
            f"{self.comments / hundreds:.1f}",
            f"{self.conditionals / hundreds:.1f}",
            f"{self.comprehensions / hundreds:.1f}",
            f"{100 * self.vague / max(self.assigned_names, 1):.1f}",
            str(len(self.long_lived)),
            str(self.examples),
        )


def python_files(paths: Iterable[Path]) -> Iterator[Path]:
    """The files themselves, and the Python files below the folders, each once, links to folders not followed."""
    for path in paths:
        if path.is_file():
            yield path
        else:
            yield from sorted(path.rglob("*.py"))


def counts_of(paths: Iterable[Path]) -> Counts:
    r"""Counts over all Python files of some files and folders.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     _ = (Path(folder) / "code.py").write_text("found = [x for x in 'ab']  # letters\\n")
    ...     counts = counts_of([Path(folder)])
    >>> counts.code_lines, counts.comprehensions, counts.comments, counts.vague
    (1, 1, 1, 1)
    """
    counts = Counts()
    for path in python_files(paths):
        text = path.read_text(encoding="utf-8")
        tree = ast.parse(text)
        _count_tokens(counts, text)
        _count_syntax(counts, tree, text)
        counts.long_lived.extend(_long_lived(tree, path))
    return counts


def _count_tokens(counts: Counts, text: str) -> None:
    lines_with_tokens = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        is_docstring = token.type == tokenize.STRING and token.string.startswith('"""')
        if token.type in (tokenize.NAME, tokenize.OP, tokenize.NUMBER, tokenize.STRING) and not is_docstring:
            counts.tokens += 1
            lines_with_tokens.add(token.start[0])
        elif token.type == tokenize.COMMENT and not any(word in token.string for word in _SAID_TO_TOOLS):
            counts.comments += 1
    counts.token_lines += len(lines_with_tokens)


def _count_syntax(counts: Counts, tree: ast.Module, text: str) -> None:
    docstring_lines = 0
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Module)):
            docstring = ast.get_docstring(node, clean=False)
            if docstring is not None:
                docstring_lines += docstring.count("\n") + 1
                counts.examples += ">>>" in docstring
        elif isinstance(node, ast.IfExp):
            counts.conditionals += 1
        elif isinstance(node, _COMPREHENSIONS):
            counts.comprehensions += 1
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            counts.assigned_names += 1
            counts.vague += node.id in VAGUE_NAMES
    blank_lines = sum(not line.strip() for line in text.splitlines())
    counts.code_lines += text.count("\n") - docstring_lines - blank_lines


def _functions(tree: ast.Module) -> Iterator[tuple[str, _Function]]:
    """Every function with its name within the file, e.g. ``Class.method.nested``."""

    def below(node: ast.AST, names: tuple[str, ...]) -> Iterator[tuple[str, _Function]]:
        for child in ast.iter_child_nodes(node):
            inner = names
            if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
                inner = (*names, child.name)
                yield ".".join(inner), child
            elif isinstance(child, ast.ClassDef):
                inner = (*names, child.name)
            yield from below(child, inner)

    return below(tree, ())


def lifetimes(function: _Function) -> dict[str, tuple[int, int]]:
    """The first line and the number of lines of each name that the function assigns, or has as a parameter."""
    uses: defaultdict[str, list[int]] = defaultdict(list)
    local_names = set()
    for node in ast.walk(function):
        if isinstance(node, ast.Name):
            uses[node.id].append(node.lineno)
            if isinstance(node.ctx, ast.Store):
                local_names.add(node.id)
    for parameter in function.args.args + function.args.kwonlyargs:
        uses[parameter.arg].append(function.lineno)
        local_names.add(parameter.arg)
    return {name: (min(uses[name]), max(uses[name]) - min(uses[name]) + 1) for name in sorted(local_names)}


def _long_lived(tree: ast.Module, path: Path) -> Iterator[str]:
    for qualified_name, function in _functions(tree):
        for name, (first_line, lines) in lifetimes(function).items():
            if name in ORIGIN_NAMES and lines > SHORT_LIFE:
                yield f"{path}:{first_line} {name} in {qualified_name}"


def our_source() -> list[Path]:
    """All folders of the rooms."""
    return [ROOT / folder for folders in ROOMS.values() for folder in folders]


def report() -> str:
    """The table of the rooms and of the nine code bases."""
    rows = [counts_of(ROOT / folder for folder in folders).row(room) for room, folders in ROOMS.items()]
    rows.append(counts_of(our_source()).row("**all rooms**"))
    rows.append(counts_of([ROOT / "tests"]).row("tests"))
    for peer, (tokens, comments, conditionals, comprehensions, vague, examples) in PEERS.items():
        figures = (tokens, comments, conditionals, comprehensions, vague)
        rows.append((peer, "", *(f"{figure:.1f}" for figure in figures), "", str(examples)))
    return table(HEADER, rows) + "\n\nComments, if-expressions and comprehensions are for 100 lines of code."


def functions_to_read(paths: Iterable[Path]) -> Iterator[str]:
    """A line for each function that has vague names, or that packs more than twelve tokens in a line."""
    for path in python_files(paths):
        text = path.read_text(encoding="utf-8")
        tokens_of_line: Counter[int] = Counter()
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type in (tokenize.NAME, tokenize.OP, tokenize.NUMBER, tokenize.STRING):
                tokens_of_line[token.start[0]] += 1
        for qualified_name, function in _functions(ast.parse(text)):
            last_line = function.end_lineno or function.lineno
            lines = [number for number in range(function.lineno, last_line + 1) if tokens_of_line[number]]
            density = sum(tokens_of_line[number] for number in lines) / max(len(lines), 1)
            vague = [name for name in lifetimes(function) if name in VAGUE_NAMES]
            if vague or (density > 12 and len(lines) > 6):
                position = f"{path}:{function.lineno} {qualified_name}"
                yield f"{position}: {density:.1f} tokens a line {' '.join(vague)}".rstrip()


def main() -> None:
    """Print the table, the counts of other code, or the functions of which a reader must hold much."""
    parser = argparse.ArgumentParser(description="How much a reader of the code must hold")
    parser.add_argument("paths", nargs="*", type=Path, help="files or folders; without: the table of the rooms")
    parser.add_argument("--functions", action="store_true", help="the functions of which a reader must hold much")
    options = parser.parse_args()
    if options.functions:
        print("\n".join(functions_to_read(options.paths or our_source())))
    elif options.paths:
        print(table(HEADER, [counts_of([path]).row(str(path)) for path in options.paths]))
    else:
        print(report())


if __name__ == "__main__":
    main()
