"""Compiles a spec into Spark plans: views for sources and steps, one flow per sink. Nothing runs here."""
