"""SASL: the mechanisms PLAIN, SCRAM (SHA-256, SHA-512, also with delegation tokens) and OAUTHBEARER for servers and
clients, the exchange of messages that authenticates one connection, and the settings of all that with Kafka's names.
Pure: bytes in, bytes out; time, random numbers and credentials are arguments.
"""
