// Version 1 of the schema: all tables and views that a new file begins with.
#include "store/state/migrations.h"

namespace evalcar::state {

// Columns that are never NULL say so; "" stands for "not yet" in texts, so that people's queries
// need no IS NULL.
const char* const kVersion1 = R"sql(
CREATE TABLE run(
  run_id INTEGER PRIMARY KEY,
  base_name TEXT NOT NULL,
  generation INTEGER NOT NULL,
  name TEXT NOT NULL UNIQUE,
  output_dir TEXT NOT NULL,
  device INTEGER NOT NULL,
  inode INTEGER NOT NULL,
  created_at TEXT NOT NULL,
  UNIQUE(base_name, generation)
) STRICT;

CREATE TABLE checkpoint(
  checkpoint_id INTEGER PRIMARY KEY,
  run_id INTEGER NOT NULL REFERENCES run,
  name TEXT NOT NULL,
  generation INTEGER NOT NULL,
  step INTEGER NOT NULL,
  path TEXT NOT NULL,
  layout TEXT NOT NULL,
  device INTEGER NOT NULL,
  inode INTEGER NOT NULL,
  seen_at TEXT NOT NULL,
  gone_at TEXT NOT NULL DEFAULT '',
  UNIQUE(run_id, name, generation)
) STRICT;

CREATE TABLE checkpoint_kind(
  checkpoint_id INTEGER NOT NULL REFERENCES checkpoint,
  kind TEXT NOT NULL,
  complete INTEGER NOT NULL,
  reason TEXT NOT NULL,
  fingerprint TEXT NOT NULL,
  size_bytes INTEGER NOT NULL,
  mtime_ns INTEGER NOT NULL,
  complete_at TEXT NOT NULL DEFAULT '',
  kept_path TEXT NOT NULL DEFAULT '',
  PRIMARY KEY(checkpoint_id, kind)
) STRICT, WITHOUT ROWID;

CREATE TABLE evaluation(
  evaluation_id INTEGER PRIMARY KEY,
  run_id INTEGER NOT NULL REFERENCES run,
  checkpoint_id INTEGER NOT NULL REFERENCES checkpoint,
  step INTEGER NOT NULL,
  kind TEXT NOT NULL,
  tasks TEXT NOT NULL,
  settings TEXT NOT NULL,
  settings_sha256 TEXT NOT NULL,
  dtype TEXT NOT NULL,
  state TEXT NOT NULL CHECK(state IN ('found','complete','leased','loading','evaluating','scored',
    'published','failed','quarantined','skipped','superseded','lost')),
  reason TEXT NOT NULL DEFAULT '',
  lease_path TEXT NOT NULL DEFAULT '',
  weights_sha256 TEXT NOT NULL DEFAULT '',
  compute_dtype TEXT NOT NULL DEFAULT '',
  attn_implementation TEXT NOT NULL DEFAULT '',
  stage TEXT NOT NULL DEFAULT '',
  progress_done INTEGER NOT NULL DEFAULT 0,
  progress_total INTEGER NOT NULL DEFAULT 0,
  attempts INTEGER NOT NULL DEFAULT 0,
  failures INTEGER NOT NULL DEFAULT 0,
  next_try_at TEXT NOT NULL DEFAULT '',
  created_at TEXT NOT NULL,
  updated_at TEXT NOT NULL,
  finished_at TEXT NOT NULL DEFAULT '',
  seconds REAL NOT NULL DEFAULT 0,
  UNIQUE(checkpoint_id, kind, tasks, settings_sha256)
) STRICT;
CREATE INDEX evaluation_by_state ON evaluation(state);
CREATE INDEX evaluation_by_step ON evaluation(run_id, step, kind);

CREATE TABLE attempt(
  attempt_id INTEGER PRIMARY KEY,
  evaluation_id INTEGER NOT NULL REFERENCES evaluation,
  number INTEGER NOT NULL,
  started_at TEXT NOT NULL,
  ended_at TEXT NOT NULL DEFAULT '',
  outcome TEXT NOT NULL DEFAULT 'running',
  stage TEXT NOT NULL DEFAULT '',
  error_kind TEXT NOT NULL DEFAULT '',
  message TEXT NOT NULL DEFAULT '',
  device TEXT NOT NULL DEFAULT '',
  UNIQUE(evaluation_id, number)
) STRICT;

CREATE TABLE answer(
  evaluation_id INTEGER NOT NULL REFERENCES evaluation,
  task TEXT NOT NULL,
  doc_id INTEGER NOT NULL,
  weights_sha256 TEXT NOT NULL,
  text TEXT NOT NULL,
  output_tokens INTEGER NOT NULL,
  PRIMARY KEY(evaluation_id, task, doc_id)
) STRICT, WITHOUT ROWID;

CREATE TABLE scored_sample(
  evaluation_id INTEGER NOT NULL REFERENCES evaluation,
  task TEXT NOT NULL,
  doc_id INTEGER NOT NULL,
  line TEXT NOT NULL,
  PRIMARY KEY(evaluation_id, task, doc_id)
) STRICT, WITHOUT ROWID;

CREATE TABLE result(
  result_id INTEGER PRIMARY KEY,
  evaluation_id INTEGER NOT NULL REFERENCES evaluation,
  weights_sha256 TEXT NOT NULL CHECK(weights_sha256 <> ''),
  kind TEXT NOT NULL,
  task TEXT NOT NULL,
  task_version TEXT NOT NULL,
  settings_sha256 TEXT NOT NULL,
  alias TEXT NOT NULL,
  num_fewshot INTEGER NOT NULL,
  n INTEGER NOT NULL,
  n_original INTEGER NOT NULL,
  lmms_results TEXT NOT NULL,
  lmms_config TEXT NOT NULL,
  notes TEXT NOT NULL,
  UNIQUE(weights_sha256, kind, task, task_version, settings_sha256)
) STRICT;

CREATE TABLE metric(
  result_id INTEGER NOT NULL REFERENCES result,
  position INTEGER NOT NULL,
  name TEXT NOT NULL,
  filter TEXT NOT NULL,
  value REAL,
  stderr REAL,
  stderr_source TEXT NOT NULL,
  missing TEXT NOT NULL,
  higher_is_better INTEGER NOT NULL,
  PRIMARY KEY(result_id, position),
  CHECK(value IS NOT NULL OR missing <> '')
) STRICT, WITHOUT ROWID;

CREATE TABLE evaluation_task(
  evaluation_id INTEGER NOT NULL REFERENCES evaluation,
  task TEXT NOT NULL,
  position INTEGER NOT NULL,
  result_id INTEGER REFERENCES result,
  error TEXT NOT NULL DEFAULT '',
  run_id INTEGER NOT NULL,
  step INTEGER NOT NULL,
  kind TEXT NOT NULL,
  current INTEGER NOT NULL,
  PRIMARY KEY(evaluation_id, task),
  CHECK(result_id IS NOT NULL OR (error <> '' AND current = 0))
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX one_current_number ON evaluation_task(run_id, step, kind, task) WHERE current = 1;

CREATE TABLE publication(
  seq INTEGER PRIMARY KEY,
  evaluation_id INTEGER NOT NULL UNIQUE REFERENCES evaluation,
  line TEXT NOT NULL,
  supersedes INTEGER,
  files TEXT NOT NULL DEFAULT '[]',
  published_at TEXT NOT NULL DEFAULT ''
) STRICT;

CREATE VIEW metrics AS
  SELECT run.name AS run, t.step AS step, t.kind AS checkpoint_type, t.task AS task,
         m.name AS metric, m.value AS value, m.stderr AS stderr, r.n AS n,
         r.weights_sha256 AS weights_sha256, e.finished_at AS finished_at, m.filter AS filter,
         m.stderr_source AS stderr_source, m.missing AS missing,
         m.higher_is_better AS higher_is_better, e.evaluation_id AS evaluation_id
    FROM evaluation_task t
    JOIN run ON run.run_id = t.run_id
    JOIN evaluation e ON e.evaluation_id = t.evaluation_id
    JOIN result r ON r.result_id = t.result_id
    JOIN metric m ON m.result_id = r.result_id
   WHERE t.current = 1;

CREATE VIEW evaluations AS
  SELECT e.evaluation_id AS evaluation_id, run.name AS run, e.step AS step, c.name AS checkpoint,
         c.generation AS generation, e.kind AS checkpoint_type, e.tasks AS tasks, e.state AS state,
         e.reason AS reason,
         CASE WHEN e.state IN ('scored','published') THEN 1.0
              WHEN e.progress_total > 0 THEN min(1.0, e.progress_done * 1.0 / e.progress_total)
              ELSE 0.0 END AS progress,
         e.attempts AS attempts, e.failures AS failures, e.weights_sha256 AS weights_sha256,
         CASE WHEN e.compute_dtype <> '' THEN e.compute_dtype ELSE e.dtype END AS dtype,
         e.settings AS settings, e.created_at AS created_at, e.updated_at AS updated_at,
         e.finished_at AS finished_at, e.next_try_at AS next_try_at, e.seconds AS seconds,
         p.seq AS seq, p.published_at AS published_at
    FROM evaluation e
    JOIN run ON run.run_id = e.run_id
    JOIN checkpoint c ON c.checkpoint_id = e.checkpoint_id
    LEFT JOIN publication p ON p.evaluation_id = e.evaluation_id;

CREATE VIEW checkpoints AS
  SELECT c.checkpoint_id AS checkpoint_id, run.name AS run, c.step AS step, c.name AS name,
         c.generation AS generation, c.path AS path, c.layout AS layout,
         k.kind AS checkpoint_type, k.complete AS complete, k.reason AS reason,
         k.size_bytes AS size_bytes, c.seen_at AS seen_at, k.complete_at AS complete_at,
         c.gone_at AS gone_at, k.kept_path AS kept_path
    FROM checkpoint c
    JOIN run ON run.run_id = c.run_id
    LEFT JOIN checkpoint_kind k ON k.checkpoint_id = c.checkpoint_id;

CREATE VIEW attempts AS
  SELECT a.attempt_id AS attempt_id, a.evaluation_id AS evaluation_id, run.name AS run,
         e.step AS step, e.kind AS checkpoint_type, a.number AS number, a.started_at AS started_at,
         a.ended_at AS ended_at, a.outcome AS outcome, a.stage AS stage,
         a.error_kind AS error_kind, a.message AS message, a.device AS device
    FROM attempt a
    JOIN evaluation e ON e.evaluation_id = a.evaluation_id
    JOIN run ON run.run_id = e.run_id;

CREATE VIEW samples AS
  SELECT run.name AS run, t.step AS step, t.kind AS checkpoint_type, t.task AS task,
         s.doc_id AS doc_id, s.line AS line, r.weights_sha256 AS weights_sha256,
         t.evaluation_id AS evaluation_id
    FROM evaluation_task t
    JOIN run ON run.run_id = t.run_id
    JOIN result r ON r.result_id = t.result_id
    JOIN scored_sample s ON s.evaluation_id = r.evaluation_id AND s.task = r.task
   WHERE t.current = 1;
)sql";

}  // namespace evalcar::state
