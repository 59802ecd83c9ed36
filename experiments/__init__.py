"""Programs on the studio: the paper's questions on the drawn world, and the report on the embedded models."""
