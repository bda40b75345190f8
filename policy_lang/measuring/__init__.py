"""How good the tests of a policy are: what they look at, what they would notice, and tests for what they leave out.

``coverage`` and ``mutation`` measure, ``generated`` writes; the others say it.
"""
