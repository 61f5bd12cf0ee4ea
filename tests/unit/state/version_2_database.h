// A database as the program of schema version 2 left it, dumped by sqlite3: checkpoint-5 is
// published, checkpoint-10 was killed after its first answer.
#pragma once

namespace evalcar::test {

inline constexpr const char* kVersion2Database = R"sql(BEGIN TRANSACTION;
PRAGMA application_id = 1702259811;
PRAGMA user_version = 2;
CREATE TABLE answer(
  evaluation_id INTEGER NOT NULL REFERENCES evaluation,
  task TEXT NOT NULL,
  doc_id INTEGER NOT NULL,
  weights_sha256 TEXT NOT NULL,
  text TEXT NOT NULL,
  output_tokens INTEGER NOT NULL,
  PRIMARY KEY(evaluation_id, task, doc_id)
) STRICT, WITHOUT ROWID;
INSERT INTO "answer" VALUES(2,'docvqa_val',0,'a630a332786a092ef55bd8de6ab83c74ea31f0caf242f697041d7e5cbaf7566f','eda36976',1);
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
INSERT INTO "attempt" VALUES(1,1,1,'2026-11-21T19:41:04.400423Z','2026-11-21T19:41:06.985212Z','scored','','','','auto');
INSERT INTO "attempt" VALUES(2,2,1,'2026-11-21T19:41:07.256730Z','','running','','','','auto');
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
INSERT INTO "checkpoint" VALUES(1,1,'checkpoint-5',1,5,'/out/run/checkpoint-5','hugging_face',65024,11027665,'2026-11-21T19:41:04.375829Z','');
INSERT INTO "checkpoint" VALUES(2,1,'checkpoint-10',1,10,'/out/run/checkpoint-10','hugging_face',65024,11027735,'2026-11-21T19:41:07.224197Z','');
CREATE TABLE checkpoint_kind(
  checkpoint_id INTEGER NOT NULL REFERENCES checkpoint,
  kind TEXT NOT NULL,
  complete INTEGER NOT NULL,
  reason TEXT NOT NULL,
  fingerprint TEXT NOT NULL,
  size_bytes INTEGER NOT NULL,
  mtime_ns INTEGER NOT NULL,
  complete_at TEXT NOT NULL DEFAULT '',
  kept_path TEXT NOT NULL DEFAULT '', files TEXT NOT NULL DEFAULT '',
  PRIMARY KEY(checkpoint_id, kind)
) STRICT, WITHOUT ROWID;
INSERT INTO "checkpoint_kind" VALUES(1,'regular',1,'','becf19b3193f368b6d4bdf6e8eb718af',2188,1795290064215487442,'2026-11-21T19:41:04.375885Z','','[["model.safetensors",11027699,2130,1795290064215109717],["config.json",11027681,52,1795290064214528173],["preprocessor_config.json",11027733,2,1795290064215487442],["tokenizer.json",11027713,2,1795290064215405634],["tokenizer_config.json",11027729,2,1795290064215456389]]');
INSERT INTO "checkpoint_kind" VALUES(2,'regular',1,'','49d30facd05b4be812150709ee88ecca',2188,1795290064219600709,'2026-11-21T19:41:07.224259Z','','[["model.safetensors",11027739,2130,1795290064219446746],["config.json",11027738,52,1795290064215648510],["preprocessor_config.json",11027742,2,1795290064219600709],["tokenizer.json",11027740,2,1795290064219508995],["tokenizer_config.json",11027741,2,1795290064219544054]]');
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
INSERT INTO "evaluation" VALUES(1,1,1,5,'regular','["docvqa_val"]','{"attn_implementation":"","batch_size":0,"bootstrap_iters":100000,"compat":"lmms-eval","data_dir":"","gen_kwargs":"","limit":null,"max_new_tokens":null,"max_pixels":1605632,"min_pixels":200704,"num_fewshot":null,"offset":0,"seed":0,"tasks":["docvqa_val"],"tasks_dir":""}','947eeb4a4279552f71996f8d542359bbd2355207267e4f11de56693d6813f809','auto','published','','/out/run/_evalcar/leases/5-1-regular','dc9d5f0f4e91596b9d9f8eb1087c9b75fa15940a5eff25f3b0f14d4582e7e358','float32','none','',2,3,1,0,'','2026-11-21T19:41:04.376239Z','2026-11-21T19:41:07.095346Z','2026-11-21T19:41:06.985245Z',0.5);
INSERT INTO "evaluation" VALUES(2,1,2,10,'regular','["docvqa_val"]','{"attn_implementation":"","batch_size":0,"bootstrap_iters":100000,"compat":"lmms-eval","data_dir":"","gen_kwargs":"","limit":null,"max_new_tokens":null,"max_pixels":1605632,"min_pixels":200704,"num_fewshot":null,"offset":0,"seed":0,"tasks":["docvqa_val"],"tasks_dir":""}','947eeb4a4279552f71996f8d542359bbd2355207267e4f11de56693d6813f809','auto','evaluating','','/out/run/_evalcar/leases/10-1-regular','a630a332786a092ef55bd8de6ab83c74ea31f0caf242f697041d7e5cbaf7566f','float32','','evaluating',1,3,1,0,'','2026-11-21T19:41:07.239732Z','2026-11-21T19:41:10.399310Z','',0.0);
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
INSERT INTO "evaluation_task" VALUES(1,'docvqa_val',0,1,'',1,5,'regular',1);
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
INSERT INTO "metric" VALUES(1,0,'anls','none',6.75136051220307731313e-01,0.01,'','',1);
CREATE TABLE publication(
  seq INTEGER PRIMARY KEY,
  evaluation_id INTEGER NOT NULL UNIQUE REFERENCES evaluation,
  line TEXT NOT NULL,
  supersedes INTEGER,
  files TEXT NOT NULL DEFAULT '[]',
  published_at TEXT NOT NULL DEFAULT ''
) STRICT;
INSERT INTO "publication" VALUES(1,1,'{"seq":1,"run":"run-01234567-1","global_step":5,"checkpoint":"checkpoint-5","checkpoint_type":"regular","weights_sha256":"dc9d5f0f4e91596b9d9f8eb1087c9b75fa15940a5eff25f3b0f14d4582e7e358","final":true,"metrics":{"eval/docvqa_val/anls":0.6751360512203077,"eval/docvqa_val/anls_stderr":0.01},"samples":3,"seconds":0.5,"lag_steps":0,"time":"2026-11-21T19:41:07.071704Z","results":"results/5/regular/run__checkpoint-5/20261121_194106_results.json","evaluation":"f615109dba37e4ab"}',NULL,'["/out/run/_evalcar/results/5/regular/run__checkpoint-5/20261121_194106_samples_docvqa_val.jsonl","/out/run/_evalcar/results/5/regular/run__checkpoint-5/20261121_194106_table.md","/out/run/_evalcar/results/5/regular/run__checkpoint-5/20261121_194106_results.json","/out/run/_evalcar/tensorboard/events.out.tfevents.1.evalcar"]','2026-11-21T19:41:07.095509Z');
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
INSERT INTO "result" VALUES(1,1,'dc9d5f0f4e91596b9d9f8eb1087c9b75fa15940a5eff25f3b0f14d4582e7e358','regular','docvqa_val','Yaml','f35e9fb15b1c8f62ccd5f8e77eb791411b62093053300a4314c54ab185024f38','docvqa_val',0,3,3,'{"alias": "docvqa_val", "anls,none": 0.6751360512203077, "anls_stderr,none": 0.01}','{}','{}');
CREATE TABLE run(
  run_id INTEGER PRIMARY KEY,
  base_name TEXT NOT NULL,
  generation INTEGER NOT NULL,
  name TEXT NOT NULL UNIQUE,
  output_dir TEXT NOT NULL,
  device INTEGER NOT NULL,
  inode INTEGER NOT NULL,
  created_at TEXT NOT NULL, mark TEXT NOT NULL DEFAULT '',
  UNIQUE(base_name, generation)
) STRICT;
INSERT INTO "run" VALUES(1,'run-01234567',1,'run-01234567-1','/out/run',65024,11027627,'2026-11-21T19:41:04.359586Z','d7c2780bf662211e6625b8a74411665a');
CREATE TABLE scored_sample(
  evaluation_id INTEGER NOT NULL REFERENCES evaluation,
  task TEXT NOT NULL,
  doc_id INTEGER NOT NULL,
  line TEXT NOT NULL,
  PRIMARY KEY(evaluation_id, task, doc_id)
) STRICT, WITHOUT ROWID;
INSERT INTO "scored_sample" VALUES(1,'docvqa_val',0,'{"doc_id": 0, "target": "x", "filtered_resps": ["e8d6b7e6"], "resps": [["e8d6b7e6"]], "anls": 3906385894}');
INSERT INTO "scored_sample" VALUES(1,'docvqa_val',1,'{"doc_id": 1, "target": "x", "filtered_resps": ["95d5b996"], "resps": [["95d5b996"]], "anls": 2513811862}');
INSERT INTO "scored_sample" VALUES(1,'docvqa_val',2,'{"doc_id": 2, "target": "x", "filtered_resps": ["87d4b497"], "resps": [["87d4b497"]], "anls": 2278864023}');
CREATE INDEX evaluation_by_state ON evaluation(state);
CREATE INDEX evaluation_by_step ON evaluation(run_id, step, kind);
CREATE UNIQUE INDEX one_current_number ON evaluation_task(run_id, step, kind, task) WHERE current = 1;
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
CREATE UNIQUE INDEX run_by_mark ON run(base_name, mark) WHERE mark <> '';
COMMIT;)sql";

}  // namespace evalcar::test
