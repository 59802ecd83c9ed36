"""The ledger of batches and its figures."""
