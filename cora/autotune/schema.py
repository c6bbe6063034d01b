"""The tables of a record file."""

from __future__ import annotations

__all__ = ["MIGRATIONS", "TABLES", "VERSION"]

#: Kept in the file's `user_version`. A step of MIGRATIONS leads from each version to the next.
VERSION = 1

MIGRATIONS = (
    """
    CREATE TABLE tasks (
        key TEXT PRIMARY KEY,       -- digest of all that follows, but for operator and space
        operator TEXT NOT NULL,     -- its name, for people
        program TEXT NOT NULL,      -- digest of the definition, types included
        dtypes TEXT NOT NULL,
        space TEXT NOT NULL,
        class TEXT NOT NULL,        -- length class
        target TEXT NOT NULL,
        threads INTEGER NOT NULL,
        cache TEXT NOT NULL,        -- cache regime of the measurements
        device TEXT NOT NULL,       -- processor, compilers, our version: JSON
        created TEXT NOT NULL
    );
    CREATE TABLE candidates (
        task TEXT NOT NULL REFERENCES tasks(key),
        id TEXT NOT NULL,
        digest TEXT NOT NULL,       -- of the steps
        steps TEXT NOT NULL,        -- of its schedule, JSON
        status TEXT NOT NULL,
        reason TEXT NOT NULL,
        build_ms REAL,
        stored_bytes INTEGER,
        PRIMARY KEY (task, id)
    );
    CREATE TABLE measurements (
        number INTEGER PRIMARY KEY,
        task TEXT NOT NULL REFERENCES tasks(key),
        run TEXT NOT NULL,
        candidate TEXT NOT NULL,    -- digest of its steps
        stage TEXT NOT NULL,        -- search, confirm or holdout
        batch TEXT NOT NULL,        -- digest of the lengths measured on
        ms REAL,                    -- NULL: too short for the timer
        reference_ms REAL,          -- of the default schedule, beside it
        busy REAL,                  -- share of the sample in which the calling thread had a core
        worker TEXT NOT NULL,
        taken TEXT NOT NULL
    );
    CREATE INDEX measurements_of ON measurements (task, stage, batch, candidate);
    CREATE TABLE winners (
        task TEXT PRIMARY KEY REFERENCES tasks(key),
        run TEXT NOT NULL,
        candidate TEXT NOT NULL,
        steps TEXT NOT NULL,
        policy TEXT NOT NULL,
        report TEXT NOT NULL,       -- JSON
        decided TEXT NOT NULL
    );
    """,
)

#: The columns of each table, in an order in which they can be imported.
TABLES = {
    "tasks": (
        "key", "operator", "program", "dtypes", "space", "class", "target", "threads", "cache", "device", "created",
    ),
    "candidates": ("task", "id", "digest", "steps", "status", "reason", "build_ms", "stored_bytes"),
    "measurements": (
        "task", "run", "candidate", "stage", "batch", "ms", "reference_ms", "busy", "worker", "taken",
    ),
    "winners": ("task", "run", "candidate", "steps", "policy", "report", "decided"),
}  # fmt: skip
