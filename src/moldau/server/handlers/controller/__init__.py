"""The APIs of the controllers' listener: of the quorum, of brokers, and of clients whose requests brokers forward."""
