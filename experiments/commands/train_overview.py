"""Help of ``train.py`` without its subcommands' options, and without importing Lightning, which takes seconds."""

from jsonargparse import ArgumentParser

SUBCOMMANDS = {
    "fit": "Trains a model on federated clients; callbacks record and audit what the server sees.",
    "validate": "Measures a checkpoint on the data's test examples.",
}


def overview() -> ArgumentParser:
    """Parser with the subcommands but not their options."""
    description = "Federated training: python train.py fit --config configs/train/fncf_movielens.yaml --data.root DIR"
    parser = ArgumentParser(prog="train.py", description=description)
    parser.add_argument("-c", "--config", action="config", help="configuration file, as in configs/train")
    subcommands = parser.add_subcommands(dest="subcommand")
    for name, summary in SUBCOMMANDS.items():
        subcommands.add_subcommand(name, ArgumentParser(description=summary), help=summary)
    return parser
