"""`moldau view`: create, list, describe and delete views."""
