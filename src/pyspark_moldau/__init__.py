"""Spark finds the format `moldau` here: a package of this name with a `DefaultSource` needs no registration."""

from __future__ import annotations

from moldau.spark.source import MoldauSource as DefaultSource

__all__ = ["DefaultSource"]
