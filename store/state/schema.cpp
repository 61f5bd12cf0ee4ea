#include "store/state/schema.h"

#include <array>
#include <charconv>
#include <string>

namespace evalcar::state {
namespace {

// Version 1. Columns that are never NULL say so; "" stands for "not yet" in texts, so that people's
// queries need no IS NULL.
constexpr const char* kVersion1 = R"sql(
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

// Version 2: what makes an output directory recognisable besides its inode, and the files behind a
// fingerprint.
constexpr const char* kVersion2 = R"sql(
ALTER TABLE run ADD COLUMN mark TEXT NOT NULL DEFAULT '';
ALTER TABLE checkpoint_kind ADD COLUMN files TEXT NOT NULL DEFAULT '';
CREATE UNIQUE INDEX run_by_mark ON run(base_name, mark) WHERE mark <> '';
)sql";

// Version 3: of a task that failed, what kind of failure it was and what it failed in; of an
// answer, to which data it is one. From now on a published row remembers a lease only while it
// holds one.
constexpr const char* kVersion3 = R"sql(
ALTER TABLE evaluation_task ADD COLUMN error_kind TEXT NOT NULL DEFAULT '';
ALTER TABLE evaluation_task ADD COLUMN circumstances TEXT NOT NULL DEFAULT '';
ALTER TABLE answer ADD COLUMN data TEXT NOT NULL DEFAULT '';
UPDATE evaluation SET lease_path = '' WHERE state IN ('scored', 'published');
)sql";

// Version 4: answers, lines and results are of a task's fingerprint, and results know their
// n_effective. Older rows have no fingerprint: they stay what they are, and are never taken for
// anything that is measured anew. A unique key changes only with its table.
constexpr const char* kVersion4 = R"sql(
DROP VIEW metrics;
DROP VIEW samples;

CREATE TABLE answer_4(
  evaluation_id INTEGER NOT NULL REFERENCES evaluation,
  task TEXT NOT NULL,
  fingerprint TEXT NOT NULL,
  doc_id INTEGER NOT NULL,
  weights_sha256 TEXT NOT NULL,
  text TEXT NOT NULL,
  output_tokens INTEGER NOT NULL,
  PRIMARY KEY(evaluation_id, task, fingerprint, doc_id)
) STRICT, WITHOUT ROWID;
INSERT INTO answer_4
  SELECT evaluation_id, task, '', doc_id, weights_sha256, text, output_tokens FROM answer;
DROP TABLE answer;
ALTER TABLE answer_4 RENAME TO answer;

CREATE TABLE scored_sample_4(
  evaluation_id INTEGER NOT NULL REFERENCES evaluation,
  task TEXT NOT NULL,
  fingerprint TEXT NOT NULL,
  doc_id INTEGER NOT NULL,
  line TEXT NOT NULL,
  PRIMARY KEY(evaluation_id, task, fingerprint, doc_id)
) STRICT, WITHOUT ROWID;
INSERT INTO scored_sample_4 SELECT evaluation_id, task, '', doc_id, line FROM scored_sample;
DROP TABLE scored_sample;
ALTER TABLE scored_sample_4 RENAME TO scored_sample;

CREATE TABLE result_4(
  result_id INTEGER PRIMARY KEY,
  evaluation_id INTEGER NOT NULL REFERENCES evaluation,
  weights_sha256 TEXT NOT NULL CHECK(weights_sha256 <> ''),
  kind TEXT NOT NULL,
  task TEXT NOT NULL,
  task_version TEXT NOT NULL,
  settings_sha256 TEXT NOT NULL,
  fingerprint TEXT NOT NULL,
  alias TEXT NOT NULL,
  num_fewshot INTEGER NOT NULL,
  n INTEGER NOT NULL,
  n_original INTEGER NOT NULL,
  n_effective INTEGER NOT NULL,
  lmms_results TEXT NOT NULL,
  lmms_config TEXT NOT NULL,
  notes TEXT NOT NULL,
  UNIQUE(weights_sha256, kind, task, task_version, settings_sha256, fingerprint)
) STRICT;
INSERT INTO result_4
  SELECT result_id, evaluation_id, weights_sha256, kind, task, task_version, settings_sha256, '',
         alias, num_fewshot, n, n_original, n, lmms_results, lmms_config, notes FROM result;
DROP TABLE result;
ALTER TABLE result_4 RENAME TO result;

CREATE VIEW metrics AS
  SELECT run.name AS run, t.step AS step, t.kind AS checkpoint_type, t.task AS task,
         m.name AS metric, m.value AS value, m.stderr AS stderr, r.n AS n,
         r.weights_sha256 AS weights_sha256, e.finished_at AS finished_at, m.filter AS filter,
         m.stderr_source AS stderr_source, m.missing AS missing,
         m.higher_is_better AS higher_is_better, e.evaluation_id AS evaluation_id,
         r.fingerprint AS fingerprint
    FROM evaluation_task t
    JOIN run ON run.run_id = t.run_id
    JOIN evaluation e ON e.evaluation_id = t.evaluation_id
    JOIN result r ON r.result_id = t.result_id
    JOIN metric m ON m.result_id = r.result_id
   WHERE t.current = 1;

CREATE VIEW samples AS
  SELECT run.name AS run, t.step AS step, t.kind AS checkpoint_type, t.task AS task,
         s.doc_id AS doc_id, s.line AS line, r.weights_sha256 AS weights_sha256,
         t.evaluation_id AS evaluation_id
    FROM evaluation_task t
    JOIN run ON run.run_id = t.run_id
    JOIN result r ON r.result_id = t.result_id
    JOIN scored_sample s ON s.evaluation_id = r.evaluation_id AND s.task = r.task
                        AND s.fingerprint = r.fingerprint
   WHERE t.current = 1;
)sql";

// Version 5: what a person asked for is not left out by a cadence.
constexpr const char* kVersion5 = R"sql(
ALTER TABLE evaluation ADD COLUMN asked INTEGER NOT NULL DEFAULT 0;
)sql";

// Version 6: scores of a part of the documents, told while the rest is answered. They are lines of
// metrics.jsonl like the others, and numbers in tables of their own, so that no query for numbers
// can meet them.
constexpr const char* kVersion6 = R"sql(
ALTER TABLE answer ADD COLUMN cut_off INTEGER;

CREATE TABLE interim(
  interim_id INTEGER PRIMARY KEY,
  seq INTEGER NOT NULL UNIQUE,
  evaluation_id INTEGER NOT NULL REFERENCES evaluation,
  run_id INTEGER NOT NULL,
  step INTEGER NOT NULL,
  kind TEXT NOT NULL,
  key TEXT NOT NULL,
  fraction REAL NOT NULL,
  weights_sha256 TEXT NOT NULL CHECK(weights_sha256 <> ''),
  line TEXT NOT NULL,
  supersedes INTEGER,
  told_at TEXT NOT NULL,
  UNIQUE(evaluation_id, key)
) STRICT;
CREATE INDEX interim_by_step ON interim(run_id, step, kind);

CREATE TABLE interim_metric(
  interim_id INTEGER NOT NULL REFERENCES interim,
  task TEXT NOT NULL,
  position INTEGER NOT NULL,
  fingerprint TEXT NOT NULL,
  n INTEGER NOT NULL,
  documents INTEGER NOT NULL,
  notes TEXT NOT NULL,
  name TEXT NOT NULL,
  filter TEXT NOT NULL,
  value REAL,
  stderr REAL,
  stderr_source TEXT NOT NULL,
  missing TEXT NOT NULL,
  higher_is_better INTEGER NOT NULL,
  PRIMARY KEY(interim_id, task, position),
  CHECK(value IS NOT NULL OR missing <> '')
) STRICT, WITHOUT ROWID;

CREATE VIEW interim_metrics AS
  SELECT run.name AS run, i.step AS step, i.kind AS checkpoint_type, m.task AS task,
         m.name AS metric, m.value AS value, m.stderr AS stderr, m.n AS n,
         m.documents AS documents, i.fraction AS fraction, i.weights_sha256 AS weights_sha256,
         i.told_at AS told_at, m.filter AS filter, m.stderr_source AS stderr_source,
         m.missing AS missing, m.higher_is_better AS higher_is_better,
         i.evaluation_id AS evaluation_id, e.state AS state, i.seq AS seq, m.notes AS notes
    FROM interim i
    JOIN interim_metric m ON m.interim_id = i.interim_id
    JOIN evaluation e ON e.evaluation_id = i.evaluation_id
    JOIN run ON run.run_id = i.run_id
   WHERE NOT EXISTS(SELECT 1 FROM evaluation_task t WHERE t.run_id = i.run_id
                    AND t.step = i.step AND t.kind = i.kind AND t.task = m.task AND t.current = 1)
     AND i.seq = (SELECT max(j.seq) FROM interim j
                    JOIN interim_metric o ON o.interim_id = j.interim_id
                   WHERE j.run_id = i.run_id AND j.step = i.step AND j.kind = i.kind
                     AND o.task = m.task);
)sql";

// Version 7: what was seen of folders that are not complete yet.
constexpr const char* kVersion7 = R"sql(
CREATE TABLE unfinished_folder(
  run_id INTEGER NOT NULL REFERENCES run,
  step INTEGER NOT NULL,
  files TEXT NOT NULL,
  older TEXT NOT NULL,
  end_ns INTEGER,
  tails TEXT NOT NULL,
  older_tails TEXT NOT NULL,
  seen_at TEXT NOT NULL,
  PRIMARY KEY(run_id, step)
) STRICT, WITHOUT ROWID;
)sql";

// kMigrations[v] brings a file from version v to v + 1.
constexpr std::array<const char*, kSchemaVersion> kMigrations = {
    kVersion1, kVersion2, kVersion3, kVersion4, kVersion5, kVersion6, kVersion7};

Result<std::int64_t> pragma_number(Connection& connection, const char* sql) {
  EVALCAR_ASSIGN_OR_RETURN(const std::string text, connection.first_text(sql));
  std::int64_t number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

/// Every row that another refers to is there.
Status check_references(Connection& connection) {
  EVALCAR_ASSIGN_OR_RETURN(Statement broken, connection.prepare("PRAGMA foreign_key_check"));
  EVALCAR_ASSIGN_OR_RETURN(const bool row, broken.step());
  if (!row) return {};
  return make_error(ErrorCode::kCorruption, connection.path() + ": a row of table " +
                                                broken.text(0) + " refers to one of table " +
                                                broken.text(2) + " that is not there");
}

}  // namespace

Result<std::int64_t> check_schema(Connection& connection) {
  EVALCAR_ASSIGN_OR_RETURN(const std::int64_t version,
                           pragma_number(connection, "PRAGMA user_version"));
  EVALCAR_ASSIGN_OR_RETURN(const std::int64_t owner,
                           pragma_number(connection, "PRAGMA application_id"));
  EVALCAR_ASSIGN_OR_RETURN(const std::int64_t tables,
                           pragma_number(connection, "SELECT count(*) FROM sqlite_schema"));
  if (owner != kApplicationId && (tables != 0 || owner != 0)) {
    return make_error(ErrorCode::kInvalidArgument,
                      connection.path() +
                          ": is a database, but not one of evalcar (application_id " +
                          std::to_string(owner) + ", expected " + std::to_string(kApplicationId) +
                          "); choose another [store] path");
  }
  if (version > kSchemaVersion) {
    return make_error(
        ErrorCode::kUnsupported,
        connection.path() + ": schema version " + std::to_string(version) +
            ", this program knows up to " + std::to_string(kSchemaVersion) +
            "; use the newer evalcar, or another [store] path. The file is unchanged");
  }
  return version;
}

Status migrate(Connection& connection, std::int64_t version) {
  if (version == kSchemaVersion) return {};
  // A table that takes another's place would be missed by the rows that refer to it.
  EVALCAR_RETURN_IF_ERROR(connection.execute("PRAGMA foreign_keys = OFF"));
  EVALCAR_ASSIGN_OR_RETURN(Transaction transaction, Transaction::begin(connection));
  for (std::int64_t v = version; v < kSchemaVersion; ++v) {
    EVALCAR_RETURN_IF_ERROR(connection.execute(kMigrations[static_cast<std::size_t>(v)]));
  }
  EVALCAR_RETURN_IF_ERROR(check_references(connection));
  EVALCAR_RETURN_IF_ERROR(
      connection.execute("PRAGMA application_id = " + std::to_string(kApplicationId) +
                         "; PRAGMA user_version = " + std::to_string(kSchemaVersion)));
  return transaction.commit();
}

}  // namespace evalcar::state
