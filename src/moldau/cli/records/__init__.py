"""`moldau produce` and `moldau consume`: records in and out."""
