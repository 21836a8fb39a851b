"""A pipeline as a graph, and the graph as a picture: terminal, Mermaid, SVG."""
