"""What the parser of ``fedleak train`` needs no Lightning for: its subcommands, their help, and a library's error."""

from jsonargparse import ArgumentParser

from fedleak.core.errors import InputError

SUBCOMMANDS = {
    "fit": "Trains a model on federated clients; callbacks record and audit what the server sees.",
    "validate": "Measures a checkpoint on the data's test examples.",
}


def overview() -> ArgumentParser:
    """Parser with the subcommands but not their options, which would import Lightning, for seconds."""
    description = "Federated training: fedleak train fit --config configs/train/fncf_movielens.yaml --data.root DIR"
    parser = ArgumentParser(prog="fedleak train", description=description)
    parser.add_argument("-c", "--config", action="config", help="configuration file, as in configs/train")
    subcommands = parser.add_subcommands(dest="subcommand")
    for name, summary in SUBCOMMANDS.items():
        subcommands.add_subcommand(name, ArgumentParser(description=summary), help=summary)
    return parser


def one_line(error: BaseException) -> str:
    """First line of what first caused an error; the errors that jsonargparse wraps around it say where it belongs."""
    while error.__cause__ is not None:
        error = error.__cause__
    if isinstance(error, InputError):
        return f"expected {error.expected}; found {error.found}"
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0].rstrip(".")
