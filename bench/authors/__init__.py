"""Attacks of fedleak and the code of their authors on the same inputs: results compared, then raced in turns."""
