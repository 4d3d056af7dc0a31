"""Statement of an audit for a data-protection officer: what was measured, declared and not looked at."""
