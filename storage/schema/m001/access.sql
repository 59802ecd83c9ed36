-- Access: who is signed in, and what scripts show instead of the password.

CREATE TABLE sessions (  -- signed-in browsers; the token itself is nowhere
    sha TEXT PRIMARY KEY NOT NULL,
    role TEXT NOT NULL CHECK (role IN ('lead', 'worker')),
    worker TEXT REFERENCES workers (id),
    created TEXT NOT NULL,
    expires TEXT NOT NULL,
    CHECK ((role = 'worker') = (worker IS NOT NULL))
) STRICT;

CREATE TABLE secrets (name TEXT PRIMARY KEY NOT NULL, value TEXT NOT NULL, changed TEXT NOT NULL) STRICT;

CREATE TABLE tokens (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    sha TEXT NOT NULL UNIQUE CHECK (length(sha) = 64),  -- of the token, which is not kept
    name TEXT NOT NULL CHECK (name <> ''),
    reads_only INTEGER NOT NULL CHECK (reads_only IN (0, 1)),
    created TEXT NOT NULL,
    expires TEXT NOT NULL,
    withdrawn TEXT  -- when; NULL as long as it is not
) STRICT;
