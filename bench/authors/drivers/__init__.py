"""The authors' sides: each file imports one repository's functions, as they are, and calls them on a contest's inputs.

The sources lie in the environment's folder ``src``; nothing of them is part of this project.
"""
