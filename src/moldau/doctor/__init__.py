"""`moldau doctor` checks this machine: `gathering` observes it, `verdicts` judges the observations."""
