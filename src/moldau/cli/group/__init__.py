"""`moldau group`: list, describe, reset and delete consumer groups."""
