"""``python -m tests.check FILE ...``: whether an addition is done, as ``make check FILES="..."`` says it.

Runs the tests of the files, the tests that look over everything of a kind, ruff, mypy and import-linter. Each step
prints a line, and what failed its output; the last line is "done", or the steps that failed.
"""

import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.places import ADDITIONS, ROOT

TESTS = ROOT / "tests"
PAGE_TEST = TESTS / "docs" / "tools" / "test_included_page.py"
"""Holds that docs/reference/included.md has what the code has."""
NOT_TYPED = (TESTS / "outside", ROOT / "docs" / "tutorials")
"""Folders that mypy leaves out, as in pyproject.toml."""


def source_of(test: str) -> Path | None:
    """The file ``a/b.py``, or the folder ``a/b``, of a test ``a/test_b``; ``test_b_more`` is a further test of it."""
    folder, _, name = test.rpartition("test_")
    words = name.split("_")
    # The longest beginning counts: test_view_select is of view_select.py where there is one, and else of view.py.
    for length in range(len(words), 0, -1):
        start = "_".join(words[:length])
        for room in (ROOT / folder, ROOT / "fedleak" / folder):
            for path in (room / f"{start}.py", room / start):
                if path.exists():
                    return path.resolve()
    return None


def all_test_files() -> list[Path]:
    """Every file with tests, those that git does not know yet too."""
    return sorted(TESTS.rglob("test_*.py"))


def find_tests(file: Path) -> list[Path]:
    """Files with tests of a file: itself, those named after it, and tests of everything of its kind.

    Where none is named after it, those that import its module.
    """
    tests = all_test_files()
    if file in tests:
        return [file]
    source = file.parent if file.name == "__init__.py" else file
    tests_of_file = [path for path in tests if source_of(str(path.relative_to(TESTS).with_suffix(""))) == source]
    if not tests_of_file:
        module = module_of(file)
        imports = (f"from {module} import", f"import {module}\n", f'"{module}.')
        tests_of_file = [path for path in tests if any(line in path.read_text(encoding="utf-8") for line in imports)]
    # Tests of everything of a kind stand in the folder of its tests, or in one above.
    room = ROOT / "fedleak" if file.is_relative_to(ROOT / "fedleak") else ROOT
    folder = TESTS / file.relative_to(room).parent
    above = [parent for parent in (folder, *folder.parents) if parent.is_relative_to(TESTS)]
    of_kind = [path for path in tests if path.parent in above and path.name.startswith("test_every_")]
    return sorted({*tests_of_file, *of_kind})


def module_of(file: Path) -> str:
    """Path by which Python imports a file of the checkout."""
    parts = file.relative_to(ROOT).with_suffix("").parts
    if parts[0] in ("recorder", "guard"):  # folders of distributions of their own
        parts = parts[1:]
    if parts[0] in ADDITIONS:
        parts = ("fedleak", *parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def steps_for(files: Sequence[Path]) -> Mapping[str, Sequence[str]]:
    """Command of each step by name, in the order in which they run."""
    code = [file for file in files if file.suffix == ".py"]
    tests = {test for file in code for test in find_tests(file)}
    if any(module_of(file).startswith("fedleak.") for file in code):
        tests.add(PAGE_TEST)
    python = [sys.executable, "-m"]
    pytest = [*python, "pytest", "-n", "auto", "--dist", "worksteal"]
    steps = {"tests": [*pytest, *sorted(map(_shown, tests))]} if tests else {}
    steps["inventory"] = [*pytest, "-m", "inventory and not integration"]
    if code:
        steps["ruff"] = [*python, "ruff", "check", *map(_shown, code)]
        steps["format"] = [*python, "ruff", "format", "--check", *map(_shown, code)]
    typed = [file for file in code if not any(file.is_relative_to(folder) for folder in NOT_TYPED)]
    if typed:
        steps["mypy"] = [*python, "mypy", *map(_typed, typed)]
    if any(module_of(file).startswith("fedleak.") for file in code):
        steps["imports"] = [str(Path(sys.executable).with_name("lint-imports"))]
    return steps


def _shown(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def _typed(file: Path) -> str:
    """The path under which mypy knows a file: below the package, where the rooms of additions are linked."""
    shown = _shown(file)
    return f"fedleak/{shown}" if shown.partition("/")[0] in ADDITIONS else shown


def main(arguments: Sequence[str]) -> int:
    """The command line; returns 0 when all steps passed, 1 when one failed, 2 for a file that is not there."""
    files = [Path(argument).resolve() for argument in arguments]
    wrong = [str(file) for file in files if not (file.is_file() and file.is_relative_to(ROOT))]
    if wrong or not files:
        found = ", ".join(wrong) or "none"
        print(f'expected files of the checkout; found {found}. Give them: make check FILES="attacks/words/new.py".')
        return 2
    for file in files:
        if file.suffix == ".py" and not find_tests(file):
            print(f"no test is of {_shown(file)}: write tests/.../test_{file.stem}.py")
    failed = []
    for name, command in steps_for(files).items():
        start = time.monotonic()
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
        print(f"{name:<10}{'FAILED' if done.returncode else 'ok':<8}{time.monotonic() - start:4.0f} s", flush=True)
        if done.returncode:
            failed.append(name)
            print(done.stdout, done.stderr, sep="\n", flush=True)
    print(f"failed: {', '.join(failed)}" if failed else "done")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
