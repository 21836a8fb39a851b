"""What `--secure` sets up: an authority, certificates, the admin user, and the settings of nodes and clients."""
