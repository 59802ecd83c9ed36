"""The demo's models under test, trained only on scenes of fair days, so that they fail on other weather and times."""
