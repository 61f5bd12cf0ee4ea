// What each version of the schema changed of the one before it. A version that was released is
// never changed again: its files are there.
#include "store/state/migrations.h"

namespace evalcar::state {
namespace {

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

/// Numbers of several settings in one run are told apart: a run remembers those of its
/// configuration (`''`: not told yet, all count as its own), and each row says its own.
constexpr const char* kVersion8 = R"sql(
ALTER TABLE run ADD COLUMN settings_sha256 TEXT NOT NULL DEFAULT '';
ALTER TABLE run ADD COLUMN average_settings_sha256 TEXT NOT NULL DEFAULT '';
DROP VIEW metrics;
DROP VIEW samples;
DROP VIEW interim_metrics;

CREATE VIEW metrics AS
  SELECT run.name AS run, t.step AS step, t.kind AS checkpoint_type, t.task AS task,
         m.name AS metric, m.value AS value, m.stderr AS stderr, r.n AS n,
         r.weights_sha256 AS weights_sha256, e.finished_at AS finished_at, m.filter AS filter,
         m.stderr_source AS stderr_source, m.missing AS missing,
         m.higher_is_better AS higher_is_better, e.evaluation_id AS evaluation_id,
         r.fingerprint AS fingerprint, e.settings_sha256 AS settings_sha256,
         iif(t.kind = 'average', run.average_settings_sha256, run.settings_sha256)
           IN ('', e.settings_sha256) AS configured
    FROM evaluation_task t
    JOIN run ON run.run_id = t.run_id
    JOIN evaluation e ON e.evaluation_id = t.evaluation_id
    JOIN result r ON r.result_id = t.result_id
    JOIN metric m ON m.result_id = r.result_id
   WHERE t.current = 1;

CREATE VIEW samples AS
  SELECT run.name AS run, t.step AS step, t.kind AS checkpoint_type, t.task AS task,
         s.doc_id AS doc_id, s.line AS line, r.weights_sha256 AS weights_sha256,
         t.evaluation_id AS evaluation_id, e.settings_sha256 AS settings_sha256,
         iif(t.kind = 'average', run.average_settings_sha256, run.settings_sha256)
           IN ('', e.settings_sha256) AS configured
    FROM evaluation_task t
    JOIN run ON run.run_id = t.run_id
    JOIN evaluation e ON e.evaluation_id = t.evaluation_id
    JOIN result r ON r.result_id = t.result_id
    JOIN scored_sample s ON s.evaluation_id = r.evaluation_id AND s.task = r.task
                        AND s.fingerprint = r.fingerprint
   WHERE t.current = 1;

CREATE VIEW interim_metrics AS
  SELECT run.name AS run, i.step AS step, i.kind AS checkpoint_type, m.task AS task,
         m.name AS metric, m.value AS value, m.stderr AS stderr, m.n AS n,
         m.documents AS documents, i.fraction AS fraction, i.weights_sha256 AS weights_sha256,
         i.told_at AS told_at, m.filter AS filter, m.stderr_source AS stderr_source,
         m.missing AS missing, m.higher_is_better AS higher_is_better,
         i.evaluation_id AS evaluation_id, e.state AS state, i.seq AS seq, m.notes AS notes,
         e.settings_sha256 AS settings_sha256,
         iif(i.kind = 'average', run.average_settings_sha256, run.settings_sha256)
           IN ('', e.settings_sha256) AS configured
    FROM interim i
    JOIN interim_metric m ON m.interim_id = i.interim_id
    JOIN evaluation e ON e.evaluation_id = i.evaluation_id
    JOIN run ON run.run_id = i.run_id
   WHERE NOT EXISTS(SELECT 1 FROM evaluation_task t WHERE t.run_id = i.run_id
                    AND t.step = i.step AND t.kind = i.kind AND t.task = m.task AND t.current = 1)
     AND i.interim_id = (SELECT j.interim_id FROM interim j
                    JOIN interim_metric o ON o.interim_id = j.interim_id
                    JOIN evaluation je ON je.evaluation_id = j.evaluation_id
                    JOIN run jr ON jr.run_id = j.run_id
                   WHERE j.run_id = i.run_id AND j.step = i.step AND j.kind = i.kind
                     AND o.task = m.task
                   ORDER BY je.settings_sha256 = iif(j.kind = 'average',
                              jr.average_settings_sha256, jr.settings_sha256) DESC,
                            j.seq DESC LIMIT 1);
)sql";

// Version 9: the pictures of a document, which all checkpoints share: they follow from what the
// fingerprint is over.
constexpr const char* kVersion9 = R"sql(
CREATE TABLE document_pictures(
  task TEXT NOT NULL,
  fingerprint TEXT NOT NULL CHECK(fingerprint <> ''),
  doc_id INTEGER NOT NULL,
  pictures TEXT NOT NULL,
  PRIMARY KEY(task, fingerprint, doc_id)
) STRICT, WITHOUT ROWID;
DROP VIEW samples;

CREATE VIEW samples AS
  SELECT run.name AS run, t.step AS step, t.kind AS checkpoint_type, t.task AS task,
         s.doc_id AS doc_id, s.line AS line, r.weights_sha256 AS weights_sha256,
         t.evaluation_id AS evaluation_id, e.settings_sha256 AS settings_sha256,
         iif(t.kind = 'average', run.average_settings_sha256, run.settings_sha256)
           IN ('', e.settings_sha256) AS configured,
         ifnull(p.pictures, '[]') AS pictures
    FROM evaluation_task t
    JOIN run ON run.run_id = t.run_id
    JOIN evaluation e ON e.evaluation_id = t.evaluation_id
    JOIN result r ON r.result_id = t.result_id
    JOIN scored_sample s ON s.evaluation_id = r.evaluation_id AND s.task = r.task
                        AND s.fingerprint = r.fingerprint
    LEFT JOIN document_pictures p ON p.task = s.task AND p.fingerprint = s.fingerprint
                                 AND p.doc_id = s.doc_id
   WHERE t.current = 1;
)sql";

// Version 10: results know what was asked (protocol::TaskResult::question), so that a task file or
// data that changed under the same settings part a series as other settings do. Of each settings
// the question of the newest result counts; older rows, which have none, count with all.
constexpr const char* kVersion10 = R"sql(
ALTER TABLE result ADD COLUMN question TEXT NOT NULL DEFAULT '';
CREATE INDEX task_by_result ON evaluation_task(run_id, task, result_id);
DROP VIEW metrics;
DROP VIEW samples;

CREATE VIEW metrics AS
  SELECT run.name AS run, t.step AS step, t.kind AS checkpoint_type, t.task AS task,
         m.name AS metric, m.value AS value, m.stderr AS stderr, r.n AS n,
         r.weights_sha256 AS weights_sha256, e.finished_at AS finished_at, m.filter AS filter,
         m.stderr_source AS stderr_source, m.missing AS missing,
         m.higher_is_better AS higher_is_better, e.evaluation_id AS evaluation_id,
         r.fingerprint AS fingerprint, e.settings_sha256 AS settings_sha256,
         iif(t.kind = 'average', run.average_settings_sha256, run.settings_sha256)
           IN ('', e.settings_sha256)
         AND r.question IN ('', ifnull((
           SELECT n.question FROM evaluation_task o
             JOIN evaluation oe ON oe.evaluation_id = o.evaluation_id
             JOIN result n ON n.result_id = o.result_id
            WHERE o.run_id = t.run_id AND o.task = t.task AND n.question <> ''
              AND oe.settings_sha256 = e.settings_sha256
            ORDER BY o.result_id DESC LIMIT 1), r.question)) AS configured,
         r.question AS question_sha256
    FROM evaluation_task t
    JOIN run ON run.run_id = t.run_id
    JOIN evaluation e ON e.evaluation_id = t.evaluation_id
    JOIN result r ON r.result_id = t.result_id
    JOIN metric m ON m.result_id = r.result_id
   WHERE t.current = 1;

CREATE VIEW samples AS
  SELECT run.name AS run, t.step AS step, t.kind AS checkpoint_type, t.task AS task,
         s.doc_id AS doc_id, s.line AS line, r.weights_sha256 AS weights_sha256,
         t.evaluation_id AS evaluation_id, e.settings_sha256 AS settings_sha256,
         iif(t.kind = 'average', run.average_settings_sha256, run.settings_sha256)
           IN ('', e.settings_sha256)
         AND r.question IN ('', ifnull((
           SELECT n.question FROM evaluation_task o
             JOIN evaluation oe ON oe.evaluation_id = o.evaluation_id
             JOIN result n ON n.result_id = o.result_id
            WHERE o.run_id = t.run_id AND o.task = t.task AND n.question <> ''
              AND oe.settings_sha256 = e.settings_sha256
            ORDER BY o.result_id DESC LIMIT 1), r.question)) AS configured,
         ifnull(p.pictures, '[]') AS pictures, r.question AS question_sha256
    FROM evaluation_task t
    JOIN run ON run.run_id = t.run_id
    JOIN evaluation e ON e.evaluation_id = t.evaluation_id
    JOIN result r ON r.result_id = t.result_id
    JOIN scored_sample s ON s.evaluation_id = r.evaluation_id AND s.task = r.task
                        AND s.fingerprint = r.fingerprint
    LEFT JOIN document_pictures p ON p.task = s.task AND p.fingerprint = s.fingerprint
                                 AND p.doc_id = s.doc_id
   WHERE t.current = 1;
)sql";

}  // namespace

const std::array<const char*, kSchemaVersion>& migrations() {
  static const std::array<const char*, kSchemaVersion> kAll = {
      kVersion1, kVersion2, kVersion3, kVersion4, kVersion5,
      kVersion6, kVersion7, kVersion8, kVersion9, kVersion10};
  return kAll;
}

}  // namespace evalcar::state
