"""The contests: inputs, fedleak's side and what is compared, a file for each setting."""
