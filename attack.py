"""The program ``fedleak`` of a checkout: ``python attack.py COMMAND``, ``python attack.py --help``."""

from fedleak.commands.program import command

if __name__ == "__main__":
    command()
