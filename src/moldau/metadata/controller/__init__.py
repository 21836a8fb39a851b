"""What the controller decides: pure functions of an image and a request that return a response and records.

None changes the image; applying the records does. `runtime/controller` calls them and appends the records. Begin with
`decision`, then `topics` as an example; leaders are elected only in `partition_change`.
"""
