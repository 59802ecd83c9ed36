"""The ledger of batches, which records all their work."""
