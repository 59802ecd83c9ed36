"""Answers the paper's three research questions with drawn scenes: `make paper-demo` writes `docs/paper-demo.md`."""
