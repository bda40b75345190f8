"""The one tool of these examples."""


def search(query: str) -> str:
    """Search the encyclopedia.

    Args:
        query: what to look for.
    """
    return f"What the encyclopedia says about {query}."
