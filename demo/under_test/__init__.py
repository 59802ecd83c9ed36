"""The demo's models under test: they learnt from fair days only, so that there is something to find."""
