"""Driving a run: the loop that obeys ``step``, and what carries out its decisions in this process."""
