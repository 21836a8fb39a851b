"""The APIs of the controllers' listener: those of the quorum, reports of brokers, and requests that brokers forward."""
