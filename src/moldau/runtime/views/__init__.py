"""Evaluates views outside of the event loop: in processes of their own, or in a thread for simulations."""
