"""The pages. Start at `ui.explore.page`."""
