"""The page Explore. Its modules turn values into HTML; `parts` has labels, buttons and other small elements."""
