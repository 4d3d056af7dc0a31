"""Commands of ``fedleak``: each file with a ``COMMAND`` is one, called by its name; and the program that runs them."""
