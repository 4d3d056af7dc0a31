"""What the command lines make of their arguments, in the checkout; nothing is run."""

import contextlib
import io
import itertools
import re
import shlex
from typing import Any

import pytest
import yaml
from torch.distributed.run import get_args_parser
from wandb.cli.cli import cli

from fedleak.commands.shared.parser import parsed
from fedleak.core.errors import InputError
from fedleak.tables import training
from fedleak_guard.command import _parser as guard_parser
from tests.places import ROOT


def training_of(*arguments: str) -> dict[str, Any]:
    """The whole configuration that ``fedleak train ARGUMENTS`` would run with."""
    said = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
        patch.chdir(ROOT)
        try:
            with pytest.raises(SystemExit) as status:
                training.main([*arguments, "--print_config"])
        except InputError as error:
            raise AssertionError(str(error)) from error
    assert status.value.code in (0, None), said.getvalue()
    configuration = yaml.safe_load(said.getvalue())
    assert isinstance(configuration, dict)
    return configuration


def check(command: str) -> None:
    """Fails where the command's own program would refuse it."""
    words = shlex.split(command)
    variables = [words.pop(0).split("=")[0] for _ in range(len(words)) if re.match(r"[A-Z_]+=", words[0])]
    program, *rest = words
    if program == "torchrun":
        parsed = get_args_parser().parse_args(rest)
        rest = [parsed.training_script, *parsed.training_script_args]
    if program == "fedleak":
        _check_ours(program, rest)
    elif program in ("python", "torchrun"):
        _check_ours(rest[0], rest[1:])
    elif program == "sbatch":
        _check_batch(variables, rest)
    elif program == "wandb":
        # What a run will have left is not there yet.
        cli.commands[rest[0]].make_context(rest[0], ["." if word.startswith("runs/") else word for word in rest[1:]])
    elif program in ("docker", "kubectl"):
        _check_files(rest)
    else:
        raise AssertionError(f"no program of ours: {program}")


def _check_files(words: list[str]) -> None:
    """Of a program that is not here: the files that it is given are in the checkout."""
    for option, value in itertools.pairwise(words):
        assert option != "-f" or (ROOT / value).is_file(), f"no file {value}"


def _check_ours(program: str, arguments: list[str]) -> None:
    if program == "train.py" or arguments[:1] == ["train"]:
        training_of(*arguments[program != "train.py" :])
    elif arguments[:1] == ["guard"]:
        guard_parser().parse_args(arguments[1:])
    else:
        assert program in ("fedleak", "attack.py"), f"no program of ours: {program}"
        parsed(arguments)


def _check_batch(variables: list[str], words: list[str]) -> None:
    place = next(i for i, word in enumerate(words) if not word.startswith("--"))
    for option in words[:place]:
        if option.startswith("--export=ALL,"):
            variables = [*variables, option.removeprefix("--export=ALL,").split("=")[0]]
    text = (ROOT / words[place]).read_text(encoding="utf-8")
    for name in variables:
        assert re.search(rf"\$\{{{name}:[-?]", text), f"{words[place]} knows no {name}"
    if "train.sbatch" in words[place]:
        _check_ours("train.py", ["fit", "--config", "configs/train/fncf_movielens.yaml", *words[place + 1 :]])
    if "attack_array" in words[place]:
        _check_ours("attack.py", ["reproduce", "configs/paper/raifle/raifle_table5.yaml", *words[place + 1 :]])
    if "audit_array" in words[place]:
        _check_ours("attack.py", ["audit", "runs/mine/deltas", *words[place + 1 :]])
