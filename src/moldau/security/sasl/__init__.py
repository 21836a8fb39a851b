"""SASL: the mechanisms PLAIN and SCRAM for servers and clients, and the exchange of messages that authenticates one
connection. Pure: bytes in, bytes out; time, random numbers and credentials are arguments.
"""
