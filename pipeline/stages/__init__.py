"""One module a stage: `caption`, `keywords`, `alternatives`, `counterfactuals`, `generation`. Each can run alone."""
