"""The benchmarks: one broker beside Apache Kafka (`bench.broker`), one broker against itself (`bench.scale`).

Everything here is a client of a broker in another process and knows only its address and process id.
Nothing of the product may be imported: the measured code must not take part in the measurement.
"""
