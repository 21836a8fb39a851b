"""Runs the metadata quorum: the driver of the Raft machine, its log and snapshots, the committed image."""
