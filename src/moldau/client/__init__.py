"""The client side of the protocol: a blocking channel and cluster for tools and the Spark connector, and the
connections of a node to other nodes.

It may import `platforms`, `base`, `wire` and `security`. Begin with `cluster` and `channel`, for records with
`fetching`; in a node with `peers`, which `peer_connections` puts on sockets. `requests` builds each admin request once,
`admin` is the admin client. `properties` translates the properties of Java's clients, `confluent` is confluent-kafka,
which only produces and consumes, or its stand-in.
"""
