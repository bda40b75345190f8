"""The agents of these examples, each with a model of its own: the script of an example tells them apart by it."""

from tools import lookup, refund

from engine import Agent

AGENTS = [
    Agent("explore", "looks things up and reports", "You look things up.", client="explore", tools=[lookup]),
    Agent("desk", "answers for customers", "You answer for customers.", client="desk", tools=[lookup]),
    Agent("payments", "moves money", "You move money.", client="payments", tools=[refund]),
]
