"""The access folder: principals, their identities, tokens and keys."""
