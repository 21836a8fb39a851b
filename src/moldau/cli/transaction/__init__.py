"""`moldau transaction`: list, describe and abort transactions; find those that hang."""
