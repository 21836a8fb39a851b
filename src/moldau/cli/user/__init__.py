"""`moldau user`: the users of SCRAM."""
