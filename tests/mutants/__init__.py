"""A sample of mutants: small changes of the source, of which the share is measured that the tests catch."""
