"""The demo's models under test. They learnt from fair days only, so that they have faults to find."""
