-- What a model that sees has judged of generated images. The latest judgement of an image counts: its checks stand
-- behind the image's own, whose names are others.

CREATE TABLE judgements (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    entry INTEGER NOT NULL REFERENCES catalogue (id),
    judge TEXT NOT NULL,  -- the name of the model
    questions TEXT NOT NULL,  -- a hash of the texts that it was sent
    checks TEXT NOT NULL CHECK (json_valid(checks)),
    replies TEXT NOT NULL CHECK (json_valid(replies)),  -- by check: prompt, whole reply, attempts
    seconds REAL NOT NULL,
    tokens INTEGER,  -- NULL if the server does not report them
    created TEXT NOT NULL
) STRICT;
CREATE INDEX judgements_by_entry ON judgements (entry, id);

CREATE TRIGGER judgements_refuse_update BEFORE UPDATE ON judgements
BEGIN SELECT RAISE(ABORT, 'judgements is append-only'); END;
CREATE TRIGGER judgements_refuse_delete BEFORE DELETE ON judgements
BEGIN SELECT RAISE(ABORT, 'judgements is append-only'); END;

CREATE VIEW latest_judgements AS
SELECT * FROM judgements
WHERE id = (SELECT max(id) FROM judgements AS other WHERE other.entry = judgements.entry);

DROP VIEW catalogue_checks;
CREATE VIEW catalogue_checks AS
SELECT catalogue.id AS entry, json_extract(checks.value, '$.name') AS name,
    json_extract(checks.value, '$.passed') AS passed, json_extract(checks.value, '$.value') AS value
FROM catalogue JOIN test_cases ON test_cases.id = catalogue.test_case, json_each(test_cases.checks) AS checks
UNION ALL SELECT entry, json_extract(one.value, '$.name'), json_extract(one.value, '$.passed'),
    json_extract(one.value, '$.value')
FROM latest_judgements, json_each(latest_judgements.checks) AS one
UNION ALL SELECT entry, json_extract(one.value, '$.name'), json_extract(one.value, '$.passed'),
    json_extract(one.value, '$.value')
FROM imported_images, json_each(imported_images.checks) AS one WHERE made;

DROP VIEW catalogue_measures;
CREATE VIEW catalogue_measures AS
SELECT catalogue.id AS entry, 'check:' || json_extract(checks.value, '$.name') AS measure,
    min(json_extract(checks.value, '$.value')) AS number
FROM catalogue JOIN test_cases ON test_cases.id = catalogue.test_case, json_each(test_cases.checks) AS checks
WHERE typeof(json_extract(checks.value, '$.value')) IN ('real', 'integer') GROUP BY 1, 2
UNION ALL SELECT entry, 'check:' || json_extract(one.value, '$.name'), min(json_extract(one.value, '$.value'))
FROM latest_judgements, json_each(latest_judgements.checks) AS one
WHERE typeof(json_extract(one.value, '$.value')) IN ('real', 'integer') GROUP BY 1, 2
UNION ALL SELECT entry, 'check:' || json_extract(one.value, '$.name'), min(json_extract(one.value, '$.value'))
FROM imported_images, json_each(imported_images.checks) AS one
WHERE made AND typeof(json_extract(one.value, '$.value')) IN ('real', 'integer') GROUP BY 1, 2
UNION ALL SELECT id, 'reviewed', review FROM catalogue WHERE verdict <> 'open'
UNION ALL SELECT entry, 'source', number FROM catalogue_sources;

-- All checks of the image leave the catalogue before a judgement and come back after it, those of an earlier one not.

CREATE TRIGGER catalogue_before_judgements BEFORE INSERT ON judgements BEGIN
    INSERT INTO catalogue_marks SELECT entry, facet, value, 0 FROM catalogue_first_facets
    WHERE entry = NEW.entry AND facet LIKE 'check:%';
    DELETE FROM catalogue_numbers
    WHERE entry = NEW.entry
        AND measure IN (SELECT id FROM catalogue_values WHERE facet = 'measure' AND value LIKE 'check:%');
END;

CREATE TRIGGER catalogue_after_judgements AFTER INSERT ON judgements BEGIN
    INSERT INTO catalogue_marks SELECT entry, facet, value, 1 FROM catalogue_first_facets
    WHERE entry = NEW.entry AND facet LIKE 'check:%';
    INSERT INTO catalogue_values (facet, value)
    SELECT 'measure', measure FROM catalogue_measures
    WHERE entry = NEW.entry AND measure LIKE 'check:%'
        AND NOT EXISTS (SELECT 1 FROM catalogue_values WHERE facet = 'measure' AND value = measure);
    INSERT INTO catalogue_numbers
    SELECT catalogue_values.id, number, entry
    FROM catalogue_measures JOIN catalogue_values ON facet = 'measure' AND value = measure
    WHERE entry = NEW.entry AND measure LIKE 'check:%';
END;
