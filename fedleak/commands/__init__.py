"""Commands of ``fedleak``, one file each, whose options `command_table` describes; the parser and the program."""
