"""The tables of models under test, as the step `m023_models_under_test` makes them. A released step is never edited.

Predictions stay in their own table under the key of their model. Here is which model that is, with all that its answers
hang on; all probabilities of a classifier, where `predictions` has the likeliest classes alone; and what a segmenter
makes of the pixels of each mask, whatever the labels are mapped to later. `m026_doubts` adds how unsure it was.
"""

from __future__ import annotations

import sqlite_utils

APPEND_ONLY = ("models_under_test", "models_asked", "probabilities", "pixel_counts")
DOUBTS_APPEND_ONLY = ("doubts",)

STATEMENTS = (
    """
    CREATE TABLE models_under_test (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        digest TEXT NOT NULL UNIQUE CHECK (length(digest) = 16),  -- of all that its answers hang on
        key TEXT NOT NULL UNIQUE CHECK (key <> ''),  -- what its predictions are stored under
        title TEXT NOT NULL,
        name TEXT NOT NULL,
        weights TEXT NOT NULL,
        kind TEXT NOT NULL CHECK (kind IN ('classification', 'segmentation')),
        preprocessing TEXT NOT NULL CHECK (json_valid(preprocessing)),
        classes TEXT NOT NULL CHECK (json_valid(classes)),
        created TEXT NOT NULL
    ) STRICT
    """,
    """
    CREATE TABLE models_asked (  -- which model some settings have loaded; the latest row of `asked` counts
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        asked TEXT NOT NULL CHECK (asked <> ''),
        model INTEGER NOT NULL REFERENCES models_under_test (id),
        settings TEXT NOT NULL CHECK (json_valid(settings)),
        created TEXT NOT NULL
    ) STRICT
    """,
    "CREATE INDEX models_asked_in_order ON models_asked (asked, id)",
    """
    CREATE TABLE probabilities (  -- of all classes of a classifier; the latest row of an image and a model counts
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        model INTEGER NOT NULL REFERENCES models_under_test (id),
        image TEXT NOT NULL REFERENCES images (sha),
        likeliest BLOB NOT NULL,  -- numbers of classes, the likeliest first: 16 bits each, little-endian
        numbers BLOB NOT NULL,  -- a float16 for each class; by zlib where that makes it much shorter
        created TEXT NOT NULL
    ) STRICT
    """,
    "CREATE INDEX probabilities_by_model ON probabilities (model, id)",
    """
    CREATE TABLE pixel_counts (  -- how many pixels of each class of a mask a segmenter calls what
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        prediction INTEGER NOT NULL REFERENCES predictions (id),
        mask TEXT NOT NULL REFERENCES images (sha),
        counts BLOB NOT NULL,  -- class in the mask (8 bits), class of the model (8), pixels (32) each; zlib
        created TEXT NOT NULL,
        UNIQUE (prediction, mask)
    ) STRICT
    """,
    "CREATE INDEX predictions_by_model ON predictions (model, image, id)",
)

DOUBTS = """
    CREATE TABLE doubts (  -- how unsure a segmenter was, means over pixels; none where that is not known
        prediction INTEGER PRIMARY KEY REFERENCES predictions (id),
        entropy REAL NOT NULL CHECK (entropy >= 0),
        gini REAL NOT NULL CHECK (gini BETWEEN 0 AND 1)
    ) STRICT
"""
"""As the step `m026_doubts` makes it."""

BY_ENTRY = (
    "catalogue_outcomes_follow_new_predictions",
    "catalogue_outcomes_follow_predictions",
    "catalogue_outcomes_follow_sources",
)
"""Triggers of one prediction each that looked at all predictions of its model: SQLite took the index of the model. With
the `+` it begins with the entries, so that what a prediction costs does not grow with those that are there."""
_BY_MODEL, _BY_ENTRY = "(held.model = NEW.model)", "(+held.model = NEW.model)"


def make_by_entry(db: sqlite_utils.Database) -> None:
    """Make these triggers anew."""
    for name in BY_ENTRY:
        ((sql,),) = db.execute("SELECT sql FROM sqlite_master WHERE type = 'trigger' AND name = ?", [name])
        assert _BY_MODEL in sql, name
        db.execute(f"DROP TRIGGER {name}")
        db.execute(sql.replace(_BY_MODEL, _BY_ENTRY))
