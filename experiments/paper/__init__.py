"""Answers the paper's three research questions on drawn scenes: `make paper-demo` writes `docs/paper-demo.md`."""
