"""Stages of a run: the types that travel, one module a stage, the checks, the driver, and the models behind seams."""
