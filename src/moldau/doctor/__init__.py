"""`moldau doctor` checks this machine: `gathering` observes it, `verdicts` judges the observations.

It may import `platforms`, `base` and `spark`; nothing asks a broker. Begin with `observations`, then `verdicts`.
"""
