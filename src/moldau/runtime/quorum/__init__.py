"""The metadata quorum at work: the driver of the Raft machine, its log and snapshots, the committed image."""
