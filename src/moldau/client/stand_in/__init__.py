"""The parts of confluent_kafka that Moldau's tools use, over our own client: for Pythons without confluent-kafka
wheels.

Names and behaviour are those of confluent_kafka, as far as the tools need them; `moldau.client.confluent` chooses
between the two. It is not a client library: it has no statistics, no transactions, and groups only by KIP-848. It goes
with the first release of confluent-kafka that has wheels for Python 3.15.
"""
