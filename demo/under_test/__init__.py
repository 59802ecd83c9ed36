"""The demo's models under test. Trained only on sunny and cloudy days, they fail under other conditions."""
