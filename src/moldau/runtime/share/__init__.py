"""The share partitions of a node, and fetches that wait for their records. It imports `share` and `replica`. Begin with
`partitions.py`.
"""
