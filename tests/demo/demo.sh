#!/bin/bash
# The main job, small and real: two processes train a small Qwen2.5-VL under FSDP2 on the CPU and save checkpoints as lmms-engine
# does; beside them runs `evalcar run`, which knows nothing of the trainer but its output directory. Called by `./dev demo`.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

demo=build/demo
run=$demo/run
database=$demo/evalcar.db
evalcar=${EVALCAR_BIN_DIR:-build/bin}/evalcar
python=build/venv/bin/python
tasks=docvqa_val,textvqa_val,mmmu_val
steps=200 save_steps=20
evaluations=$((steps / save_steps * 2)) # regular and EMA

say() { printf '\033[1m==\033[0m %s\n' "$*"; }
query() { sqlite3 -readonly -cmd '.timeout 5000' "$database" "$1" 2>/dev/null || true; }

trainer='' agent=''
finish() {
  [ -z "$agent" ] || kill -TERM "$agent" 2>/dev/null || true
  [ -z "$trainer" ] || kill -TERM "$trainer" 2>/dev/null || true
  wait
}
trap finish EXIT
trap 'exit 130' INT TERM

rm -rf $demo
mkdir -p $demo
say "validation sets: 60 questions each about colours, shapes and numbers, in the Parquet form of DocVQA, TextVQA and MMMU"
HF_HUB_OFFLINE=1 $python tests/demo/validation_sets.py $demo/data --count 60 >$demo/data.log 2>&1 || { cat $demo/data.log; exit 1; }

say "training: 2 processes, $steps steps, a checkpoint every $save_steps, all but the last 2 deleted   ($demo/train.log)"
started=$SECONDS
OMP_NUM_THREADS=1 $python -m torch.distributed.run --nproc-per-node 2 tests/demo/train.py $run --steps $steps \
  --save-steps $save_steps --save-total-limit 2 >$demo/train.log 2>&1 &
trainer=$!

# The pictures are small, so the evaluation is told not to enlarge them: `min_pixels` is the processor's own.
command=($evalcar run $run --tasks $tasks --data $demo/data --device cpu --set store.path=$database --set evaluate.min_pixels=3136)
say "evaluating beside it: ${command[*]}   ($demo/evalcar.log)"
nice "${command[@]}" >$demo/evalcar.log 2>&1 &
agent=$!

# One line for every number as it is published, and the trainer's progress now and then.
shown=0 step_shown=''
progress() {
  local step lines
  step=$(grep -h '^step ' $demo/train.log 2>/dev/null | tail -1) || true
  if [ -n "$step" ] && [ "$step" != "$step_shown" ]; then
    echo "   trainer   $step"
    step_shown=$step
  fi
  lines=$(query "SELECT min(e.seq), 'evalcar   checkpoint-' || m.step || '  ' || printf('%-8s', m.checkpoint_type) ||
      group_concat(printf('%s %.3f', m.task, m.value), '  ')
    FROM metrics m JOIN evaluations e USING (evaluation_id)
    WHERE m.value IS NOT NULL AND e.seq > $shown GROUP BY e.seq ORDER BY e.seq")
  if [ -n "$lines" ]; then
    sed 's/^[0-9]*|/   /' <<<"$lines"
    shown=$(tail -1 <<<"$lines" | cut -d'|' -f1)
  fi
}

while kill -0 $trainer 2>/dev/null; do
  progress
  kill -0 $agent 2>/dev/null || { tail -20 $demo/evalcar.log; say "evalcar ended early"; exit 1; }
  sleep 3
done
wait $trainer || { tail -20 $demo/train.log; say "training failed"; exit 1; }
trainer=''
say "training ended after $((SECONDS - started)) s; evalcar finishes what is left (leases keep the deleted checkpoints' weights)"
while [ "$(query "SELECT count(*) FROM evaluations WHERE state IN ('published','lost','skipped','superseded','quarantined')")" != $evaluations ]; do
  progress
  kill -0 $agent 2>/dev/null || { tail -20 $demo/evalcar.log; say "evalcar ended early"; exit 1; }
  [ $((SECONDS - started)) -lt 900 ] || { tail -20 $demo/evalcar.log; say "not done after 15 minutes"; exit 1; }
  sleep 1
done
progress
kill -TERM $agent
wait $agent || { tail -20 $demo/evalcar.log; say "evalcar ended with an error"; exit 1; }
agent=''
say "everything evaluated $((SECONDS - started)) s after the start"

echo
$evalcar results --db $database
$evalcar results --db $database --plot $demo/curve.svg >/dev/null
published=$(query "SELECT count(*) FROM evaluations WHERE state = 'published'")
cat <<END

curve   $demo/curve.svg
files   $run/_evalcar/   (metrics.jsonl, best.json, results/<step>/<kind>/… in lmms-eval's format, tensorboard/)
more    sqlite3 -readonly $database \\
          "SELECT step, checkpoint_type, value, stderr FROM metrics WHERE task = 'docvqa_val' AND metric = 'anls' ORDER BY step"
        sqlite3 -readonly $database \\
          "SELECT doc_id, line->>'target', line->>'filtered_resps' FROM samples
           WHERE task = 'mmmu_val' AND checkpoint_type = 'ema' AND step = $steps LIMIT 5"

END

good=$(query "SELECT count(DISTINCT task) FROM metrics WHERE step = $steps AND checkpoint_type = 'regular' AND value >= 0.9")
say "$published of $evaluations evaluations published; $good of 3 tasks end at 0.9 or more"
[ "$published" = $evaluations ] && [ "${good:-0}" -ge 2 ]
