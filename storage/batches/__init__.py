"""The ledger of batches: a record of each batch's work and its results."""
