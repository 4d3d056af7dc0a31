"""Programs that write pages of the documentation."""
