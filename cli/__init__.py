"""The command lines. They turn arguments into calls of the other packages, and print for a terminal. Each
`python -m PACKAGE` begins here.
"""
