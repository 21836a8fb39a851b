"""`moldau cluster`: start and stop a cluster on this machine; show the nodes and leaders of any cluster."""
