"""The paper's three questions on the drawn world, from nothing to `docs/paper-demo.md`: `make paper-demo`."""
