"""Attacks on what was recorded: ``python attack.py COMMAND``; ``attack.py --help`` lists the commands."""

from fedleak.commands.program import command

if __name__ == "__main__":
    command()
