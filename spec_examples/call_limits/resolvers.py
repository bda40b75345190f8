"""The host's functions that these policies name with `using`.

Each is given why it is asked: the resource whose limit is reached, what was used of it, its maximum, and the
conversation so far. It returns the instruction of the final call.
"""

from engine.run.resolvers import ResolverContext


def wrap_up(context: ResolverContext) -> str:
    """In the language of the question, with the reason."""
    question = next(m.text for m in context.messages if m.role == "user")
    if question.startswith("¿"):
        return f"Se alcanzó el límite ({context.used} de {context.maximum}). Responde sin herramientas."
    return f"The limit is reached ({context.used} of {context.maximum}). Answer without tools."


def silent(context: ResolverContext) -> str:
    """Nothing to say: the engine's own instruction is sent."""
    return ""


def broken(context: ResolverContext) -> str:
    """A function that fails, as any function may."""
    raise RuntimeError("the template service is down")
