"""What ``policy verify`` shows: verdicts in words, runs as tables, runs as tests of the language.

What is proved, and how, is ``engine.verify``'s business.
"""
