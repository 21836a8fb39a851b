"""Where Spark looks for the format `moldau`: a package of this name with a `DefaultSource` needs no registering."""

from __future__ import annotations

from moldau.spark.source import MoldauSource as DefaultSource

__all__ = ["DefaultSource"]
