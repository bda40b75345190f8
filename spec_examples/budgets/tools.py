"""The tools of these examples. What they do depends on their arguments alone, so that every run is the same."""


def lookup(topic: str) -> str:
    """Look something up.

    Args:
        topic: what to look up.
    """
    return f"What is known about {topic}."


def refund(order: str, amount: int) -> str:
    """Pay money back to a customer.

    Args:
        order: the number of the order.
        amount: in dollars.
    """
    return f"Refunded ${amount} for order {order}."
