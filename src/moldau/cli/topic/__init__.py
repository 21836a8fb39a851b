"""`moldau topic`: create, list, describe, alter, trim and delete topics."""
