"""``python -m fedleak``: the program ``fedleak``."""

from fedleak.commands.program import command

if __name__ == "__main__":
    command()
