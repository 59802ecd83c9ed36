"""The command lines: they turn arguments into calls of the rooms below, and print for a terminal. Each `python -m ROOM`
begins here.
"""
