"""The rules and statistics of a validity study: pure functions. No SQL, no pages, no room but core."""
