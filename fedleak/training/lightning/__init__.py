"""What Lightning needs of a module: building, arguments, checkpoints, launches, errors."""
