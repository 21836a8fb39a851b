"""A spec made into Spark's plans: sources and steps as views, one flow per sink; nothing runs here."""
