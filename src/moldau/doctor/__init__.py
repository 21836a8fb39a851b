"""`moldau doctor`: what this machine is like, observed (`gathering`), then judged (`verdicts`)."""
