"""What `--secure` sets up: an authority, certificates, the admin user, and the settings of nodes and clients.

It may import `platforms`, `base`, `wire`, `security`, `log`, `raft`, `metadata` and `local_cluster`. Begin with
`directory`, which has the files, then `authority`.
"""
