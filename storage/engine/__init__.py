"""The SQLite file: one writer, many readers, locks, and how values become columns."""
