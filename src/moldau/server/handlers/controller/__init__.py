"""The APIs of the controllers' listener: those of the quorum, requests of brokers, and requests that brokers forward."""
