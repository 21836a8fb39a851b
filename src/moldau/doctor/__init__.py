"""`moldau doctor`: what this machine is like, observed (`gathering`, `machine`), then judged (`verdicts`)."""
