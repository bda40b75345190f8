"""First versions of policy files: shipped templates, and files made from the answers to a few questions.

``templates`` are real files of the package; ``questions`` says what is asked and judges answers, ``compose`` writes
them down. None of it knows a terminal or a disk.
"""
