"""Record batches by column: numpy finds and reads the fields of thousands of records at once.

It may import only `base`, and needs numpy. Whoever imports it loads numpy, so the broker's own process does not: the
cleaner's process, the workers of views and the Spark connector do. Begin with `record_starts`, then `varints`.
"""
