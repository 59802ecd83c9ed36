"""What a test set says of a model under test: predictions as a job, figures, the control set, and what opens images."""
