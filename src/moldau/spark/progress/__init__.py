"""A streaming query as one line that is kept up to date: what it did, how fast, and how far it is behind."""
