"""Fetches of clients: the request for some partitions of one leader, what its response says of each of them, and the
record batches in it. Pure: whoever fetches has the connection.

It may import `base` and `wire`. Begin with `requests.Fetch`, which is sent and then takes the response apart;
`batches` cuts records into whole batches and knows those of aborted transactions. The Spark connector reads the headers
of batches by column, from the positions that `batches` finds. Followers (`runtime/replication`) and voters (`raft`) do
not fetch so: they have incremental sessions, check epochs, and append what they get as it is.
"""
