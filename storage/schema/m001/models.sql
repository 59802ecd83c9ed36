-- Models under test: what each says of an image, and what follows from it.

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
) STRICT;

CREATE TABLE models_asked (  -- which model some settings have loaded; the latest row of `asked` counts
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    asked TEXT NOT NULL CHECK (asked <> ''),
    model INTEGER NOT NULL REFERENCES models_under_test (id),
    settings TEXT NOT NULL CHECK (json_valid(settings)),
    created TEXT NOT NULL
) STRICT;
CREATE INDEX models_asked_in_order ON models_asked (asked, id);

CREATE TABLE predictions (  -- the latest row of an image and a model counts
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    image TEXT NOT NULL REFERENCES images (sha),
    model TEXT NOT NULL,
    kind TEXT NOT NULL CHECK (kind IN ('classification', 'segmentation')),
    name TEXT NOT NULL,  -- what the page calls the model
    label TEXT NOT NULL,  -- the likeliest class; '' of a segmentation
    top TEXT NOT NULL CHECK (json_valid(top)),
    classes TEXT NOT NULL CHECK (json_valid(classes)),
    class_map TEXT REFERENCES images (sha),  -- an L-mode PNG of class numbers; NULL of a classification
    created TEXT NOT NULL
) STRICT;
CREATE INDEX predictions_by_image ON predictions (image, model, id);
CREATE INDEX predictions_by_model ON predictions (model, image, id);

CREATE TABLE probabilities (  -- of all classes of a classifier; the latest row of an image and a model counts
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    model INTEGER NOT NULL REFERENCES models_under_test (id),
    image TEXT NOT NULL REFERENCES images (sha),
    likeliest BLOB NOT NULL,  -- numbers of classes, the likeliest first: 16 bits each, little-endian
    numbers BLOB NOT NULL,  -- a float16 for each class; by zlib where that makes it much shorter
    created TEXT NOT NULL
) STRICT;
CREATE INDEX probabilities_by_model ON probabilities (model, id);

CREATE TABLE pixel_counts (  -- how many pixels of each class of a mask a segmenter calls what
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    prediction INTEGER NOT NULL REFERENCES predictions (id),
    mask TEXT NOT NULL REFERENCES images (sha),
    counts BLOB NOT NULL,  -- class in the mask (8 bits), class of the model (8), pixels (32) each; zlib
    created TEXT NOT NULL,
    UNIQUE (prediction, mask)
) STRICT;

CREATE TABLE doubts (  -- how unsure a segmenter was, means over pixels; none where that is not known
    prediction INTEGER PRIMARY KEY REFERENCES predictions (id),
    entropy REAL NOT NULL CHECK (entropy >= 0),
    gini REAL NOT NULL CHECK (gini BETWEEN 0 AND 1)
) STRICT;

CREATE TABLE retrainings (  -- the latest row of `asked` counts
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    about TEXT NOT NULL CHECK (about <> ''),  -- which images and which model
    asked TEXT NOT NULL CHECK (asked <> ''),  -- the whole question
    model INTEGER NOT NULL REFERENCES models_under_test (id),
    told TEXT NOT NULL CHECK (json_valid(told)),  -- all that a report tells
    created TEXT NOT NULL
) STRICT;
CREATE INDEX retrainings_in_order ON retrainings (about, id);

CREATE TABLE score_runs (  -- the latest row counts
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    studies TEXT NOT NULL CHECK (json_valid(studies)),  -- whose votes it was learnt from: names by ids
    learnt TEXT NOT NULL CHECK (json_valid(learnt)),  -- what gives a score for the figures of checks
    agreement TEXT NOT NULL CHECK (json_valid(agreement)),  -- with people, on images that it was not learnt from
    images INTEGER NOT NULL CHECK (images > 0),  -- that have a score
    entries BLOB NOT NULL,  -- which ones: a bit an entry (storage.curation.entry_sets)
    scores BLOB NOT NULL,  -- of each of them, in order, 32 bits
    created TEXT NOT NULL
) STRICT;

CREATE TABLE embedders (  -- models that place images; one that was trained anew is another
    id INTEGER PRIMARY KEY AUTOINCREMENT,  -- of its files: vectors/ID.rows and vectors/ID.entries
    name TEXT NOT NULL UNIQUE CHECK (name <> ''),
    dimensions INTEGER NOT NULL CHECK (dimensions > 0),
    vectors INTEGER NOT NULL CHECK (vectors >= 0),  -- the rows of its files that count
    created TEXT NOT NULL
) STRICT;
