"""The active controller, the requests it serves, what it does by itself, and the channel by which brokers reach it."""
