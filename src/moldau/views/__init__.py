"""Views: topics that are not stored. What a view says, and the records of its source as the view shows them.

Pure. It may import `base`, `wire`, `columns` and `log`. Begin with `definition` and `jobs`, which is all that a
broker loads of the evaluation; `evaluation`, `engine`, `records` and `rewriting` run in the workers
(`runtime/views`).
"""
