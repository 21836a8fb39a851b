"""What is served on the controllers' listener: the quorum's own conversation, brokers that report, and requests that
brokers pass on.
"""
