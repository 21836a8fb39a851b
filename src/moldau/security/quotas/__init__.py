"""Client quotas: which limit holds for whom, how fast a client is, and for how long it must pause."""
