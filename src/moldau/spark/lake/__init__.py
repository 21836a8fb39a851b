"""Lake tables (Parquet, Delta, Iceberg) in local and shared directories, written exactly once by (query id, batch id).

`source.LakeSource` is Spark's format "moldau-lake"; the functions here are for `foreachBatch`, with Arrow rows.
No jars and no JVM are needed; Delta and Iceberg need the extra `moldau[lake]`.
"""

from __future__ import annotations

from moldau.spark.lake.tables import BatchTag, LakeError
from moldau.spark.lake.writing import append, overwrite, upsert

__all__ = ["BatchTag", "LakeError", "append", "overwrite", "upsert"]
