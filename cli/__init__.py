"""The command lines: arguments to calls of the rooms below, and words for a terminal. Each `python -m ROOM` begins
here.
"""
