"""The command line: `moldau <noun> <verb>`, a package for each noun, and Kafka's own tools in `kafka`.

Its commands are clients: they use the protocol, never the objects of a broker, so it may import none of `server`,
`runtime`, `replica` and `assembly`; only the commands that start a broker import `node`. What the console does too is
in `operations`, and `next_steps` has the command line's words for what helps after its failures. Begin with `main`,
which has the list of commands, then `connect` and `output`.
"""
