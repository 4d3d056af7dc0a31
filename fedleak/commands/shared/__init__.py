"""What commands share: options and their values, the parser, and the objects that options name."""
