"""What tests of several directories share: nodes and clusters in memory, worlds, oracles, patience and depth."""
