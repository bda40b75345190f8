"""Two policies side by side: what is written otherwise, line by line, and how ``policy diff`` and ``backtest`` say it.

Knows the shape of policies and what a comparison came to; it must not know the command line.
"""
