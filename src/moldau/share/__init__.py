"""Share groups (KIP-932) at the leader of a partition: which of its records each group has got, and who holds them.

Pure: time and the states that share coordinators keep are arguments. It imports `base` and `wire`. Begin
with `ports.py`.
"""
