"""Pictures of a policy: what a run under it can come to, and the lines that lead there.

``life`` and ``tree`` make a ``Picture`` of the compiled policy; ``mermaid``, ``svg`` and ``page`` write one down.
"""
