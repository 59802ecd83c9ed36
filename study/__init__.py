"""The rules and the statistics of a validity study: pure functions. No SQL, no pages, nothing of the other rooms."""
