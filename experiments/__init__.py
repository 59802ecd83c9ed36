"""Programs that use the studio: the paper's research questions on drawn scenes, and a report on the demo's models."""
