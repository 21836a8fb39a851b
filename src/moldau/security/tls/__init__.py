"""TLS: key and trust stores, contexts of Python's ssl from Kafka's ssl.* settings, and the names in certificates.

Files are an argument (`KeyFiles`): `moldau.platforms.key_files` reads real ones.
"""
