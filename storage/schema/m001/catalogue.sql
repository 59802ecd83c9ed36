-- The catalogue: a row for each image that can be curated, found by any filter and in any order.
--
-- All of it says again what other tables say. Triggers keep it in the transaction of what it follows; the views say how
-- each part follows from the other tables, and `python -m storage check` compares the two.
--
-- A value of a facet (such as `class` `bird`) has the set of entries that have it, so that any filter is an
-- intersection of sets and any count the size of one. What entries can be ordered by is a measure; each measure is
-- parted into bins, which are facets too: histograms, sliders and the place in an order come from them.
--
-- SQL cannot change a set of bits nor compare labels by their meaning. What is to be done of that stands in the tables
-- `pending_...`: the program does it before it commits, and at opening what another program has left there.

CREATE TABLE catalogue (  -- an image that can be curated
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    test_case INTEGER UNIQUE REFERENCES test_cases (id),  -- NULL of an image that was imported
    image TEXT NOT NULL REFERENCES images (sha),
    source TEXT REFERENCES images (sha),
    run TEXT REFERENCES runs (id),
    kind TEXT NOT NULL CHECK (kind IN ('classification', 'segmentation')),
    label TEXT NOT NULL,  -- of a classification
    classes TEXT NOT NULL CHECK (json_valid(classes)),  -- the label, or the protected classes
    edit_types TEXT NOT NULL CHECK (json_valid(edit_types)),
    edits INTEGER NOT NULL,
    weather TEXT NOT NULL,  -- as its edit says: '' where none does
    time_of_day TEXT NOT NULL,
    profile TEXT NOT NULL,
    recipe TEXT NOT NULL,
    method TEXT NOT NULL,
    verdict TEXT NOT NULL CHECK (verdict IN ('accepted', 'rejected', 'open')),
    review INTEGER REFERENCES reviews (id),  -- the latest, also one that took an earlier one back
    there INTEGER NOT NULL CHECK (there IN (0, 1)),  -- 0 while its run is deleted
    created TEXT NOT NULL
) STRICT;
CREATE INDEX catalogue_by_run ON catalogue (run, id) WHERE run IS NOT NULL;
CREATE INDEX catalogue_by_source ON catalogue (source, id) WHERE source IS NOT NULL;
CREATE INDEX catalogue_by_image ON catalogue (image);

CREATE TABLE catalogue_values (  -- a value of a facet that some entry has or had
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    facet TEXT NOT NULL,
    value TEXT NOT NULL,
    entries INTEGER NOT NULL DEFAULT 0,  -- that have it, those of deleted runs left out
    UNIQUE (facet, value)
) STRICT;

CREATE TABLE catalogue_sets (  -- the entries that have a value, those of deleted runs as well
    id INTEGER PRIMARY KEY,  -- catalogue_values.id << 24 | entry >> 14
    members BLOB NOT NULL
) STRICT;

CREATE TABLE catalogue_numbers (  -- what entries can be ordered by
    measure INTEGER NOT NULL REFERENCES catalogue_values (id),
    number REAL NOT NULL,
    entry INTEGER NOT NULL REFERENCES catalogue (id),
    PRIMARY KEY (measure, number, entry)
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX catalogue_numbers_by_entry ON catalogue_numbers (entry, measure);

CREATE TABLE catalogue_outcomes (  -- what a model under test, which has read an image, gets right of it
    entry INTEGER NOT NULL REFERENCES catalogue (id),
    model TEXT NOT NULL,
    prediction INTEGER NOT NULL REFERENCES predictions (id),
    source_prediction INTEGER REFERENCES predictions (id),
    measured INTEGER NOT NULL CHECK (measured IN (0, 1)),  -- 0: it takes the class maps, and nobody looked yet
    source_right INTEGER CHECK (source_right IN (0, 1)),
    image_right INTEGER CHECK (image_right IN (0, 1)),
    standing TEXT NOT NULL GENERATED ALWAYS AS (CASE
        WHEN NOT measured THEN 'not measured' WHEN image_right = 1 THEN 'right'
        WHEN image_right = 0 AND source_right = 1 THEN 'newly wrong' WHEN image_right = 0 THEN 'wrong'
        ELSE 'cannot tell' END) STORED,
    PRIMARY KEY (entry, model)
) STRICT, WITHOUT ROWID;

CREATE TABLE catalogue_cells (  -- how many entries each cell of a coverage table has
    grid TEXT NOT NULL,
    line TEXT NOT NULL,
    place TEXT NOT NULL,
    facet TEXT NOT NULL,  -- 'review', or that of a model
    value TEXT NOT NULL,
    entries INTEGER NOT NULL,
    PRIMARY KEY (grid, line, place, facet, value)
) STRICT, WITHOUT ROWID;
CREATE INDEX catalogue_cells_reviewed ON catalogue_cells (grid, line, place, value)
    WHERE facet = 'review' AND entries > 0;  -- cells in which nobody decided about an image yet

-- Contentless: captions stand in their own tables already, and a trigger knows what it takes out.
CREATE VIRTUAL TABLE catalogue_words USING fts5 (
    caption, counterfactual, edited, content = '', columnsize = 0,
    tokenize = 'porter unicode61 remove_diacritics 2'
);

CREATE TABLE pending_set_changes (  -- entries that come into the set of a value, or leave it
    id INTEGER PRIMARY KEY,
    value INTEGER NOT NULL REFERENCES catalogue_values (id),
    entry INTEGER NOT NULL,
    put INTEGER NOT NULL CHECK (put IN (0, 1))
) STRICT;

CREATE TABLE pending_outcomes (  -- outcomes to be worked out anew
    entry INTEGER NOT NULL,
    model TEXT NOT NULL
) STRICT;

-- How the rows of the catalogue follow from test cases and from imported images.

CREATE VIEW entries_of_test_cases AS
SELECT test_cases.id AS test_case, test_cases.image, runs.source, test_cases.run,
    iif(json_array_length(task, '$.protected') > 0, 'segmentation', 'classification') AS kind,
    CASE WHEN labels.label <> '' THEN labels.label
        WHEN json_array_length(task, '$.protected') > 0 THEN ''
        ELSE coalesce(json_extract(task, '$.label'), '') END AS label,
    CASE WHEN labels.label <> '' THEN json_array(labels.label)
        WHEN json_array_length(task, '$.protected') > 0
            THEN (SELECT json_group_array(DISTINCT value) FROM json_each(task, '$.protected'))
        WHEN coalesce(json_extract(task, '$.label'), '') = '' THEN '[]'
        ELSE json_array(json_extract(task, '$.label')) END AS classes,
    (SELECT json_group_array(DISTINCT json_extract(value, '$.edit_type')) FROM json_each(counterfactual, '$.edits'))
        AS edit_types,
    json_array_length(counterfactual, '$.edits') AS edits,
    coalesce((
        SELECT json_extract(value, '$.alternative') FROM json_each(counterfactual, '$.edits')
        WHERE json_extract(value, '$.edit_type') = 'weather' LIMIT 1
    ), '') AS weather,
    coalesce((
        SELECT json_extract(value, '$.alternative') FROM json_each(counterfactual, '$.edits')
        WHERE json_extract(value, '$.edit_type') = 'time of day' LIMIT 1
    ), '') AS time_of_day,
    profile, recipe, method, iif(verdict = '', 'open', verdict) AS verdict, review, NOT removed AS there,
    test_cases.created
FROM test_cases JOIN runs ON runs.id = test_cases.run JOIN run_summaries ON run_summaries.run = test_cases.run
    JOIN test_case_states ON test_case_states.test_case = test_cases.id
    LEFT JOIN catalogue_labels AS labels ON labels.id = (
        SELECT max(catalogue_labels.id) FROM catalogue JOIN catalogue_labels ON entry = catalogue.id
        WHERE catalogue.test_case = test_cases.id
    );

CREATE VIEW entries_of_imports AS
SELECT imported_images.entry AS id, image,
    (SELECT sha FROM images WHERE sha = imported_images.source AND sha <> imported_images.image) AS source,
    iif(mask IS NOT NULL AND imported_images.label = '', 'segmentation', 'classification') AS kind,
    iif(labels.label <> '', labels.label, imported_images.label) AS label,
    CASE WHEN labels.label <> '' THEN json_array(labels.label)
        WHEN imported_images.label <> '' THEN json_array(imported_images.label)
        WHEN mask IS NULL THEN '[]'
        ELSE (SELECT json_group_array(DISTINCT value) FROM json_each(mask_classes)) END AS classes,
    (SELECT json_group_array(DISTINCT value) FROM json_each(edit_types)) AS edit_types,
    json_array_length(edits) AS edits,
    coalesce((
        SELECT json_extract(value, '$.alternative') FROM json_each(edits)
        WHERE json_extract(value, '$.edit_type') = 'weather' LIMIT 1
    ), '') AS weather,
    coalesce((
        SELECT json_extract(value, '$.alternative') FROM json_each(edits)
        WHERE json_extract(value, '$.edit_type') = 'time of day' LIMIT 1
    ), '') AS time_of_day,
    iif(json_type(facts, '$.profile') = 'text', json_extract(facts, '$.profile'), '') AS profile,
    iif(json_type(facts, '$.lineage.recipe') = 'text', json_extract(facts, '$.lineage.recipe'), '') AS recipe,
    iif(json_type(facts, '$.lineage.method') = 'text', json_extract(facts, '$.lineage.method'), '') AS method,
    coalesce(reviews.verdict, 'open') AS verdict, reviews.id AS review, 1 AS there, imported_images.created
FROM imported_images
    LEFT JOIN reviews ON reviews.id = (SELECT max(id) FROM reviews WHERE entry = imported_images.entry)
    LEFT JOIN catalogue_labels AS labels
        ON labels.id = (SELECT max(id) FROM catalogue_labels WHERE entry = imported_images.entry)
WHERE made;

-- How facets, orders, texts, outcomes and cells follow.

CREATE VIEW catalogue_checks AS
SELECT catalogue.id AS entry, json_extract(checks.value, '$.name') AS name,
    json_extract(checks.value, '$.passed') AS passed, json_extract(checks.value, '$.value') AS value
FROM catalogue JOIN test_cases ON test_cases.id = catalogue.test_case, json_each(test_cases.checks) AS checks
UNION ALL SELECT entry, json_extract(one.value, '$.name'), json_extract(one.value, '$.passed'),
    json_extract(one.value, '$.value')
FROM imported_images, json_each(imported_images.checks) AS one WHERE made;

-- Minus the first entry of the same source: so entries of one source stand together, the newest source first.
CREATE VIEW catalogue_sources AS
SELECT id AS entry, -coalesce((SELECT min(id) FROM catalogue AS other WHERE other.source = catalogue.source), id)
    AS number
FROM catalogue;

CREATE VIEW catalogue_measures AS
SELECT catalogue.id AS entry, 'check:' || json_extract(checks.value, '$.name') AS measure,
    min(json_extract(checks.value, '$.value')) AS number
FROM catalogue JOIN test_cases ON test_cases.id = catalogue.test_case, json_each(test_cases.checks) AS checks
WHERE typeof(json_extract(checks.value, '$.value')) IN ('real', 'integer') GROUP BY 1, 2
UNION ALL SELECT entry, 'check:' || json_extract(one.value, '$.name'), min(json_extract(one.value, '$.value'))
FROM imported_images, json_each(imported_images.checks) AS one
WHERE made AND typeof(json_extract(one.value, '$.value')) IN ('real', 'integer') GROUP BY 1, 2
UNION ALL SELECT id, 'reviewed', review FROM catalogue WHERE verdict <> 'open'
UNION ALL SELECT entry, 'source', number FROM catalogue_sources;

-- The bin of a number is 1/50 wide (storage.curation.entry_sets.bin_of). Reviews and sources are ordered by their
-- numbers, of which 409,600 are a unit, and 8,192 a bin.
CREATE VIEW catalogue_number_facets AS
SELECT entry, measure, 'measure' AS facet, value
FROM catalogue_numbers JOIN catalogue_values ON catalogue_values.id = measure
UNION ALL SELECT entry, measure, 'bin:' || value, CAST(CAST(
    min(max(iif(value IN ('reviewed', 'source'), number / 409600.0, number), -1000.0), 1000000.0) * 50 + 1000000
    AS INTEGER) - 1000000 AS TEXT)
FROM catalogue_numbers JOIN catalogue_values ON catalogue_values.id = measure;

CREATE VIEW catalogue_first_facets AS  -- that an entry has from the beginning
SELECT id AS entry, 'there' AS facet, '' AS value FROM catalogue WHERE there
UNION ALL SELECT id, 'kind', kind FROM catalogue
UNION ALL SELECT id, 'profile', profile FROM catalogue WHERE profile <> ''
UNION ALL SELECT id, 'recipe', recipe FROM catalogue WHERE recipe <> ''
UNION ALL SELECT id, 'method', method FROM catalogue WHERE method <> ''
UNION ALL SELECT id, 'review', verdict FROM catalogue
UNION ALL SELECT id, 'weather', weather FROM catalogue WHERE weather <> ''
UNION ALL SELECT id, 'time of day', time_of_day FROM catalogue WHERE time_of_day <> ''
UNION ALL SELECT id, 'edits', CAST(edits AS TEXT) FROM catalogue
UNION ALL SELECT catalogue.id, 'class', names.value FROM catalogue, json_each(classes) AS names
UNION ALL SELECT catalogue.id, 'edit type', names.value FROM catalogue, json_each(edit_types) AS names
UNION ALL SELECT DISTINCT entry, 'check:' || name,
    CASE passed WHEN 1 THEN 'passed' WHEN 0 THEN 'failed' ELSE 'cannot tell' END
FROM catalogue_checks
UNION ALL SELECT entry, 'imported', '' FROM imported_images WHERE made
UNION ALL SELECT DISTINCT entry, 'import', imports.name
FROM imported_images JOIN imports ON imports.id = imported_images.import WHERE entry IS NOT NULL
UNION ALL SELECT DISTINCT entry, 'split', split FROM imported_images WHERE entry IS NOT NULL AND split <> '';

CREATE VIEW catalogue_facets AS
SELECT entry, facet, value FROM catalogue_first_facets
UNION ALL SELECT entry, facet, value FROM catalogue_number_facets
UNION ALL SELECT entry, 'model:' || model, standing FROM catalogue_outcomes
UNION ALL SELECT DISTINCT catalogue.id, 'study', iif(outcome = '', 'undecided', outcome)
FROM catalogue JOIN study_items ON study_items.test_case = catalogue.test_case WHERE study_items.kind = 'item'
UNION ALL SELECT entry, 'tag', tag FROM catalogue_tags AS tags
WHERE put AND id = (SELECT max(id) FROM catalogue_tags WHERE entry = tags.entry AND tag = tags.tag)
-- Two batches may have one name: the number tells them apart. The work is found by the run, since an index of it by
-- test case would cost at every piece of work.
UNION ALL SELECT DISTINCT catalogue.id, 'batch', batches.name || ' #' || batches.id
FROM catalogue JOIN batch_sources ON batch_sources.run = catalogue.run
    JOIN batch_work ON batch_work.source = batch_sources.id AND batch_work.test_case = catalogue.test_case
    JOIN batches ON batches.id = batch_sources.batch;

CREATE VIEW catalogue_texts AS
SELECT catalogue.id AS entry, catalogue.run,
    coalesce((SELECT json_extract(value, '$.text') FROM stage_values WHERE id = (
        SELECT max(id) FROM stage_values WHERE run = catalogue.run AND stage = 'caption'
    )), '') AS caption,
    json_extract(counterfactual, '$.text') AS counterfactual,
    coalesce((
        SELECT group_concat(json_extract(value, '$.keyword') || ' ' || json_extract(value, '$.alternative'), ' ')
        FROM json_each(counterfactual, '$.edits')
    ), '') AS edited
FROM catalogue JOIN test_cases ON test_cases.id = catalogue.test_case
UNION ALL SELECT entry, NULL, caption, new_caption, coalesce((
    SELECT group_concat(json_extract(value, '$.keyword') || ' ' || json_extract(value, '$.alternative'), ' ')
    FROM json_each(edits)
), '')
FROM imported_images WHERE made;

-- What each model under test has said of a generated image and of its source. Labels are given where they tell what is
-- right; of a segmentation the class maps tell it (`measured` is 0 until the program has compared them).
CREATE VIEW catalogue_predictions AS
SELECT catalogue.id AS entry, images.model, images.id AS prediction, sources.id AS source_prediction,
    catalogue.kind = 'classification' OR sources.id IS NULL OR images.kind = 'classification'
        OR sources.kind = 'classification' AS measured,
    catalogue.kind, iif(catalogue.kind = 'classification', nullif(catalogue.label, ''), NULL) AS label,
    nullif(sources.label, '') AS source_label, nullif(images.label, '') AS image_label
FROM catalogue JOIN predictions AS images ON images.image = catalogue.image
    LEFT JOIN predictions AS sources ON sources.id = (
        SELECT max(id) FROM predictions WHERE image = catalogue.source AND model = images.model
    )
WHERE catalogue.test_case IS NOT NULL
    AND images.id = (SELECT max(id) FROM predictions WHERE image = catalogue.image AND model = images.model);

CREATE VIEW catalogue_places AS  -- the cells of the coverage tables in which an entry stands
SELECT catalogue.id AS entry, 'class x edit type' AS grid, lines.value AS line, places.value AS place
FROM catalogue, json_each(iif(classes = '[]', '[""]', classes)) AS lines,
    json_each(iif(edit_types = '[]', '[""]', edit_types)) AS places
UNION ALL SELECT id, 'weather x time of day', weather, time_of_day
FROM catalogue WHERE weather <> '' OR time_of_day <> '';

-- What an entry gains or loses is put into this view, which changes sets, counts and cells.

CREATE VIEW catalogue_marks AS SELECT 0 AS entry, '' AS facet, '' AS value, 0 AS put WHERE 0;

CREATE TRIGGER catalogue_marks_change_sets INSTEAD OF INSERT ON catalogue_marks BEGIN
    INSERT INTO catalogue_values (facet, value) SELECT NEW.facet, NEW.value
    WHERE NOT EXISTS (SELECT 1 FROM catalogue_values WHERE facet = NEW.facet AND value = NEW.value);
    INSERT INTO pending_set_changes (value, entry, put)
    SELECT id, NEW.entry, NEW.put FROM catalogue_values WHERE facet = NEW.facet AND value = NEW.value;
    UPDATE catalogue_values SET entries = entries + iif(NEW.put, 1, -1)
    WHERE facet = NEW.facet AND value = NEW.value
        AND (NEW.facet = 'there' OR (SELECT there FROM catalogue WHERE id = NEW.entry));
END;

CREATE TRIGGER catalogue_marks_change_cells INSTEAD OF INSERT ON catalogue_marks
WHEN (NEW.facet = 'review' OR NEW.facet LIKE 'model:%') AND (SELECT there FROM catalogue WHERE id = NEW.entry)
BEGIN
    INSERT INTO catalogue_cells SELECT grid, line, place, NEW.facet, NEW.value, iif(NEW.put, 1, -1)
    FROM catalogue_places WHERE entry = NEW.entry
    ON CONFLICT DO UPDATE SET entries = entries + excluded.entries;
END;

-- Entries begin with a test case or with an imported image.

CREATE TRIGGER catalogue_follows_test_cases AFTER INSERT ON test_case_states BEGIN
    INSERT INTO catalogue (test_case, image, source, run, kind, label, classes, edit_types, edits, weather, time_of_day,
        profile, recipe, method, verdict, review, there, created)
    SELECT test_case, image, source, run, kind, label, classes, edit_types, edits, weather, time_of_day,
        profile, recipe, method, verdict, review, there, created
    FROM entries_of_test_cases WHERE test_case = NEW.test_case;
END;

-- An image may be in several imports, also in two of one name: a facet has it once.
CREATE TRIGGER catalogue_follows_imports AFTER INSERT ON imported_images WHEN NEW.entry IS NOT NULL BEGIN
    INSERT INTO catalogue (id, image, source, kind, label, classes, edit_types, edits, weather, time_of_day,
        profile, recipe, method, verdict, review, there, created)
    SELECT id, image, source, kind, label, classes, edit_types, edits, weather, time_of_day,
        profile, recipe, method, verdict, review, there, created
    FROM entries_of_imports WHERE NEW.made AND id = NEW.entry;
    INSERT INTO catalogue_marks SELECT NEW.entry, 'import', name, 1 FROM imports
    WHERE NOT NEW.made AND id = NEW.import AND NOT EXISTS (
        SELECT 1 FROM imported_images JOIN imports AS other ON other.id = imported_images.import
        WHERE entry = NEW.entry AND imported_images.id <> NEW.id AND other.name = imports.name
    );
    INSERT INTO catalogue_marks SELECT NEW.entry, 'split', NEW.split, 1
    WHERE NOT NEW.made AND NEW.split <> '' AND NOT EXISTS (
        SELECT 1 FROM imported_images WHERE entry = NEW.entry AND id <> NEW.id AND split = NEW.split
    );
END;

CREATE TRIGGER catalogue_begins AFTER INSERT ON catalogue BEGIN
    INSERT INTO catalogue_marks SELECT entry, facet, value, 1 FROM catalogue_first_facets WHERE entry = NEW.id;
    INSERT INTO catalogue_values (facet, value)
    SELECT 'measure', measure FROM catalogue_measures WHERE entry = NEW.id AND NOT EXISTS (
        SELECT 1 FROM catalogue_values WHERE facet = 'measure' AND value = measure
    );
    INSERT INTO catalogue_numbers
    SELECT catalogue_values.id, number, entry
    FROM catalogue_measures JOIN catalogue_values ON facet = 'measure' AND value = measure WHERE entry = NEW.id;
    INSERT INTO catalogue_words (rowid, caption, counterfactual, edited)
    SELECT entry, caption, counterfactual, edited FROM catalogue_texts WHERE entry = NEW.id;
    INSERT INTO pending_outcomes
    SELECT DISTINCT NEW.id, model FROM predictions WHERE image = NEW.image AND NEW.test_case IS NOT NULL;
END;

-- Verdicts.

CREATE TRIGGER catalogue_follows_reviews AFTER UPDATE OF review, verdict ON test_case_states BEGIN
    UPDATE catalogue SET review = NEW.review, verdict = iif(NEW.verdict = '', 'open', NEW.verdict)
    WHERE test_case = NEW.test_case;
END;

CREATE TRIGGER catalogue_follows_own_reviews AFTER INSERT ON reviews WHEN NEW.entry IS NOT NULL BEGIN
    UPDATE catalogue SET review = NEW.id, verdict = NEW.verdict WHERE id = NEW.entry AND coalesce(review, 0) < NEW.id;
END;

CREATE TRIGGER catalogue_changes_verdict AFTER UPDATE OF verdict ON catalogue WHEN OLD.verdict <> NEW.verdict BEGIN
    INSERT INTO catalogue_marks VALUES (NEW.id, 'review', OLD.verdict, 0);
    INSERT INTO catalogue_marks VALUES (NEW.id, 'review', NEW.verdict, 1);
END;

CREATE TRIGGER catalogue_changes_review AFTER UPDATE OF review, verdict ON catalogue
WHEN OLD.review IS NOT NEW.review OR OLD.verdict <> NEW.verdict
BEGIN
    DELETE FROM catalogue_numbers WHERE entry = NEW.id AND measure = (
        SELECT id FROM catalogue_values WHERE facet = 'measure' AND value = 'reviewed'
    );
    INSERT INTO catalogue_values (facet, value) SELECT 'measure', 'reviewed'
    WHERE NOT EXISTS (SELECT 1 FROM catalogue_values WHERE facet = 'measure' AND value = 'reviewed');
    INSERT INTO catalogue_numbers SELECT id, NEW.review, NEW.id FROM catalogue_values
    WHERE facet = 'measure' AND value = 'reviewed' AND NEW.verdict <> 'open';
END;

-- Tags and labels.

CREATE TRIGGER catalogue_follows_tags AFTER INSERT ON catalogue_tags WHEN NEW.put <> coalesce((
    SELECT put FROM catalogue_tags WHERE entry = NEW.entry AND tag = NEW.tag AND id < NEW.id ORDER BY id DESC LIMIT 1
), 0)
BEGIN INSERT INTO catalogue_marks VALUES (NEW.entry, 'tag', NEW.tag, NEW.put); END;

-- Cells of a coverage table go with the old class and come with the new one: by marks of what stands in them.
CREATE TRIGGER catalogue_follows_labels AFTER INSERT ON catalogue_labels BEGIN
    INSERT INTO pending_outcomes SELECT entry, model FROM catalogue_outcomes WHERE entry = NEW.entry;
    DELETE FROM catalogue_outcomes WHERE entry = NEW.entry;
    INSERT INTO catalogue_marks SELECT id, 'review', verdict, 0 FROM catalogue WHERE id = NEW.entry;
    INSERT INTO catalogue_marks
    SELECT NEW.entry, 'class', value, 0 FROM json_each((SELECT classes FROM catalogue WHERE id = NEW.entry));
    UPDATE catalogue SET label = iif(
        NEW.label <> '', NEW.label, (SELECT before FROM catalogue_labels WHERE entry = NEW.entry ORDER BY id LIMIT 1)
    ) WHERE id = NEW.entry;
    UPDATE catalogue SET classes = iif(label = '', '[]', json_array(label)) WHERE id = NEW.entry;
    INSERT INTO catalogue_marks
    SELECT NEW.entry, 'class', value, 1 FROM json_each((SELECT classes FROM catalogue WHERE id = NEW.entry));
    INSERT INTO catalogue_marks SELECT id, 'review', verdict, 1 FROM catalogue WHERE id = NEW.entry;
END;

-- Entries of deleted runs.

CREATE TRIGGER catalogue_follows_runs AFTER UPDATE OF removed ON run_summaries WHEN OLD.removed <> NEW.removed
BEGIN UPDATE catalogue SET there = NOT NEW.removed WHERE run = NEW.run; END;

CREATE TRIGGER catalogue_comes_and_goes AFTER UPDATE OF there ON catalogue WHEN OLD.there <> NEW.there BEGIN
    INSERT INTO catalogue_marks VALUES (NEW.id, 'there', '', NEW.there);
    UPDATE catalogue_values SET entries = entries + iif(NEW.there, 1, -1) WHERE facet <> 'there' AND id IN (
        SELECT had.id FROM catalogue_facets JOIN catalogue_values AS had USING (facet, value) WHERE entry = NEW.id
    );
    INSERT INTO catalogue_cells SELECT grid, line, place, facet, value, iif(NEW.there, 1, -1)
    FROM catalogue_places, catalogue_facets
    WHERE catalogue_places.entry = NEW.id AND catalogue_facets.entry = NEW.id
        AND (facet = 'review' OR facet LIKE 'model:%')
    ON CONFLICT DO UPDATE SET entries = entries + excluded.entries;
END;

-- Orders. The score of validity is left alone: all images get theirs at once, and the program makes the sets anew.

CREATE TRIGGER catalogue_numbers_come AFTER INSERT ON catalogue_numbers
WHEN NEW.measure IS NOT (SELECT id FROM catalogue_values WHERE facet = 'measure' AND value = 'validity score')
BEGIN
    INSERT INTO catalogue_marks
    SELECT entry, facet, value, 1 FROM catalogue_number_facets WHERE entry = NEW.entry AND measure = NEW.measure;
END;

CREATE TRIGGER catalogue_numbers_go BEFORE DELETE ON catalogue_numbers
WHEN OLD.measure IS NOT (SELECT id FROM catalogue_values WHERE facet = 'measure' AND value = 'validity score')
BEGIN
    INSERT INTO catalogue_marks
    SELECT entry, facet, value, 0 FROM catalogue_number_facets WHERE entry = OLD.entry AND measure = OLD.measure;
END;

-- The source of an imported image may come later.
CREATE TRIGGER catalogue_sources_follow_images AFTER INSERT ON images BEGIN
    UPDATE catalogue SET source = NEW.sha WHERE source IS NULL AND id IN (
        SELECT entry FROM imported_images
        WHERE source = NEW.sha AND source <> '' AND image <> NEW.sha AND made  -- source <> '' lets the index serve
    );
END;

-- Only those change their place in the order by source that have another first image by it: all images of the source,
-- if the changed one comes before them.
CREATE TRIGGER catalogue_follows_sources AFTER UPDATE OF source ON catalogue WHEN OLD.source IS NOT NEW.source BEGIN
    DELETE FROM catalogue_numbers
    WHERE measure = (SELECT id FROM catalogue_values WHERE facet = 'measure' AND value = 'source')
        AND entry IN (
            SELECT NEW.id
            UNION ALL SELECT id FROM catalogue WHERE source = (
                SELECT OLD.source WHERE NOT EXISTS (SELECT 1 FROM catalogue WHERE source = OLD.source AND id < NEW.id)
            )
            UNION ALL SELECT id FROM catalogue WHERE source = (
                SELECT NEW.source WHERE NOT EXISTS (SELECT 1 FROM catalogue WHERE source = NEW.source AND id < NEW.id)
            )
        )
        AND number <> (SELECT number FROM catalogue_sources AS now WHERE now.entry = catalogue_numbers.entry);
    INSERT INTO catalogue_numbers
    SELECT catalogue_values.id, moved.number, moved.entry
    FROM catalogue_values, catalogue_sources AS moved
    WHERE catalogue_values.facet = 'measure' AND catalogue_values.value = 'source'
        AND moved.entry IN (
            SELECT NEW.id
            UNION ALL SELECT id FROM catalogue WHERE source = (
                SELECT OLD.source WHERE NOT EXISTS (SELECT 1 FROM catalogue WHERE source = OLD.source AND id < NEW.id)
            )
            UNION ALL SELECT id FROM catalogue WHERE source = (
                SELECT NEW.source WHERE NOT EXISTS (SELECT 1 FROM catalogue WHERE source = NEW.source AND id < NEW.id)
            )
        )
        AND NOT EXISTS (
            SELECT 1 FROM catalogue_numbers WHERE entry = moved.entry AND measure = catalogue_values.id
        );
END;

-- Models under test.

CREATE TRIGGER catalogue_follows_predictions AFTER INSERT ON predictions BEGIN
    INSERT INTO pending_outcomes
    SELECT id, NEW.model FROM catalogue WHERE image = NEW.image AND test_case IS NOT NULL
    UNION ALL SELECT id, NEW.model FROM catalogue WHERE source = NEW.image AND test_case IS NOT NULL;
END;

CREATE TRIGGER catalogue_follows_masks AFTER UPDATE OF state ON run_summaries
WHEN (SELECT mask || mask_classes FROM run_states WHERE id = OLD.state)
    IS NOT (SELECT mask || mask_classes FROM run_states WHERE id = NEW.state)
BEGIN
    INSERT INTO pending_outcomes
    SELECT entry, model FROM catalogue JOIN catalogue_outcomes ON entry = catalogue.id
    WHERE run = NEW.run AND kind = 'segmentation';
END;

CREATE TRIGGER catalogue_outcomes_come AFTER INSERT ON catalogue_outcomes
BEGIN INSERT INTO catalogue_marks VALUES (NEW.entry, 'model:' || NEW.model, NEW.standing, 1); END;

CREATE TRIGGER catalogue_outcomes_go AFTER DELETE ON catalogue_outcomes
BEGIN INSERT INTO catalogue_marks VALUES (OLD.entry, 'model:' || OLD.model, OLD.standing, 0); END;

CREATE TRIGGER catalogue_outcomes_change AFTER UPDATE ON catalogue_outcomes WHEN OLD.standing <> NEW.standing BEGIN
    INSERT INTO catalogue_marks VALUES (OLD.entry, 'model:' || OLD.model, OLD.standing, 0);
    INSERT INTO catalogue_marks VALUES (NEW.entry, 'model:' || NEW.model, NEW.standing, 1);
END;

-- Captions. Before a new one the words of the old one are taken out of all entries of its run.

CREATE TRIGGER catalogue_words_go BEFORE INSERT ON stage_values WHEN NEW.stage = 'caption' BEGIN
    INSERT INTO catalogue_words (catalogue_words, rowid, caption, counterfactual, edited)
    SELECT 'delete', entry, caption, counterfactual, edited FROM catalogue_texts WHERE run = NEW.run;
END;

CREATE TRIGGER catalogue_words_come AFTER INSERT ON stage_values WHEN NEW.stage = 'caption' BEGIN
    INSERT INTO catalogue_words (rowid, caption, counterfactual, edited)
    SELECT entry, caption, counterfactual, edited FROM catalogue_texts WHERE run = NEW.run;
END;

-- Studies. What one says of an entry comes with the first item that says so, and goes with the last.

CREATE TRIGGER catalogue_follows_new_items AFTER INSERT ON study_items
WHEN NEW.kind = 'item' AND NEW.test_case IS NOT NULL
BEGIN
    INSERT INTO catalogue_marks SELECT id, 'study', iif(NEW.outcome = '', 'undecided', NEW.outcome), 1
    FROM catalogue WHERE test_case = NEW.test_case AND NOT EXISTS (
        SELECT 1 FROM study_items
        WHERE test_case = NEW.test_case AND kind = 'item' AND outcome = NEW.outcome AND id <> NEW.id
    );
END;

CREATE TRIGGER catalogue_follows_gone_items AFTER DELETE ON study_items
WHEN OLD.kind = 'item' AND OLD.test_case IS NOT NULL
BEGIN
    INSERT INTO catalogue_marks SELECT id, 'study', iif(OLD.outcome = '', 'undecided', OLD.outcome), 0
    FROM catalogue WHERE test_case = OLD.test_case AND NOT EXISTS (
        SELECT 1 FROM study_items
        WHERE test_case = OLD.test_case AND kind = 'item' AND outcome = OLD.outcome AND id <> OLD.id
    );
END;

CREATE TRIGGER catalogue_follows_outcomes AFTER UPDATE OF outcome ON study_items
WHEN NEW.kind = 'item' AND NEW.test_case IS NOT NULL AND OLD.outcome <> NEW.outcome
BEGIN
    INSERT INTO catalogue_marks SELECT id, 'study', iif(OLD.outcome = '', 'undecided', OLD.outcome), 0
    FROM catalogue WHERE test_case = OLD.test_case AND NOT EXISTS (
        SELECT 1 FROM study_items
        WHERE test_case = OLD.test_case AND kind = 'item' AND outcome = OLD.outcome AND id <> OLD.id
    );
    INSERT INTO catalogue_marks SELECT id, 'study', iif(NEW.outcome = '', 'undecided', NEW.outcome), 1
    FROM catalogue WHERE test_case = NEW.test_case AND NOT EXISTS (
        SELECT 1 FROM study_items
        WHERE test_case = NEW.test_case AND kind = 'item' AND outcome = NEW.outcome AND id <> NEW.id
    );
END;

-- Batches. An image is of the batch that has made it, not of one whose run a person drew it in later.

CREATE TRIGGER catalogue_follows_batches AFTER UPDATE OF test_case ON batch_work
WHEN OLD.test_case IS NULL AND NEW.test_case IS NOT NULL
BEGIN
    INSERT INTO catalogue_marks SELECT catalogue.id, 'batch', batches.name || ' #' || batches.id, 1
    FROM catalogue JOIN batches ON batches.id = NEW.batch WHERE catalogue.test_case = NEW.test_case;
END;
