"""The benchmarks: one broker beside Apache Kafka (`bench.broker`), one broker with itself (`bench.scale`).

Everything here is a client of a broker in another process and knows it only by its address and its process id.
Nothing of the product may be imported: what is measured must not help to measure itself.
"""
