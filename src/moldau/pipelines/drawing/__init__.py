"""The flow of a pipeline as a graph, and the graph as a picture: terminal, Mermaid, SVG."""
