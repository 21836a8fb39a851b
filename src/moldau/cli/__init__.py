"""The command line: `moldau <noun> <verb>`, a package for each noun, and Kafka's own tools in `kafka`.

Its commands are clients: they use the protocol, never the objects of a broker, so it may import none of `server`,
`runtime`, `replica` and `assembly`; only the commands that start a broker import `node`. Begin with `main`, which has
the list of commands, then `connect` and `output`.
"""
