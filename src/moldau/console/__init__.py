"""The web console: a process of its own that speaks Kafka's protocol to any cluster, and HTTP to browsers.

Like the command line it is a client: it may import `operations`, `client`, `security`, `pipelines`, `metrics` and what
these share (`platforms`, `base`, `wire`), `web`, which is its HTTP, and `views` with `runtime/views` for the conditions
of searches, never `cli` or a broker. Begin with `server` and `console`, then `call` and one module of `endpoints`.
`next_steps` has its words for what helps after a failure of an operation.
"""
