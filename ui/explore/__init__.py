"""The page Explore. Its modules turn values into markup; `parts` has pills, buttons and other small elements."""
