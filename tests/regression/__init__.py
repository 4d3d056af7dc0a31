"""The numbers of every paper's table, frozen: what a change of the code must leave as it is."""
