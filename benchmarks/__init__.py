"""Speed and memory, measured as ratios inside one run: ``python -m benchmarks`` prints the table.

Nothing here is imported by the product. Every module measures one part and gives ``Section``s;
``harness`` times, ``report`` prints.
"""
