"""The admin requests of the protocol, each built in one place. A function sends one request by `ask`: a channel to one
node, a cluster's `ask_any`, or an admin client that tries again. It returns what the response says.

Needs only `base` and `wire`. `cluster` uses it, and `admin` above that; tools with a connection to one node use it too.
"""
