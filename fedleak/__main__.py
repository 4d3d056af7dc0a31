"""``python -m fedleak``: the command ``fedleak``."""

from fedleak.commands.program import command

if __name__ == "__main__":
    command()
