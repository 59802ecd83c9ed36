"""The SQLite file: one writer, many readers, locks, and the conversion of values to columns."""
