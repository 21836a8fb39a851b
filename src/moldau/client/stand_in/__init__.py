"""What Moldau's tools use of confluent_kafka, over our own client: for Pythons that confluent-kafka has no wheels for.

The names and their behaviour are confluent_kafka's, as far as the tools look at them; `moldau.client.confluent` chooses
between the two. It is no client library: no statistics, no transactions, groups only in the protocol of KIP-848.
"""
