"""Who may do what, with which secrets: roles, tokens, secrets by reference, and zip files from outside."""
