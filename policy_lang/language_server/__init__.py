"""What an editor asks about policy files, answered in the words of the Language Server Protocol.

``analysis`` reads a document with all it asks for; one module for each question looks at that and answers; ``server``
alone knows pygls and what is open in the editor. The findings, the layout and the fixes are those of the commands.
"""
