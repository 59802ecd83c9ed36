"""The ledger of batches, and figures of it."""
