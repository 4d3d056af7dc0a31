"""Prior and update together: what the server knows of the answers with the update, and how many bits it adds."""
