"""Moldau in your tests and notebooks. `broker()` is a context manager; with pytest, the fixture `moldau_broker`."""

from __future__ import annotations

from moldau.testing.broker import TestBroker, broker

__all__ = ["TestBroker", "broker"]
