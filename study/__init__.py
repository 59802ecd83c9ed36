"""The rules and statistics of a validity study: pure functions. No SQL, no pages; imports only core."""
