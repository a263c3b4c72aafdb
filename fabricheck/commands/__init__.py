"""What a user can type: options, help, and what is printed at the end.

Here: a module for each group of commands, imported only when one runs. Not here: decisions; each command calls a room.
"""
