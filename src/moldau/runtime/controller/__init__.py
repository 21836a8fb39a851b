"""The active controller, the requests it serves, its periodic duties, and the channel by which brokers reach it."""
