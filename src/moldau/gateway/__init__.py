"""The gateway: devices, browsers and scripts send and follow records over HTTP and MQTT, with any Kafka behind it.

One process, one event loop. `ports` says what the two fronts, `http` and `mqtt`, need of Kafka; `kafka` is that on the
connections of `client/peers`. Each user of the cluster who sends or reads is an `Account` with connections of its own:
the brokers check their password, rights and quotas. Like the command line it is a client of the cluster, and may import
what clients may. Begin with `ports`.
"""
