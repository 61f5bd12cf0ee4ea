# The runners of `./dev test`, `./dev faults` and `./dev fuzz`, and the one line that sums them up. Sourced by `dev`.
#
# Every runner leaves a JUnit file in build/logs/, from which its cases are counted; a runner that dies without one counts as
# one failed case, so nothing can be missing from the sum unseen.

total_passed=0 total_failed=0 total_skipped=0
run_started=$(date -u +%Y-%m-%dT%H:%M:%SZ)

# count NAME FILE STATUS [STARTED]: adds a runner's cases to the sum and lists its failures.
count() {
  local passed failed skipped
  read -r passed failed skipped < <($venv/bin/python tests/junit.py count "$2") || true
  : "${passed:=0}" "${failed:=0}" "${skipped:=0}"
  if [ "$3" != 0 ] && [ "$failed" = 0 ]; then
    failed=1
    say "$1 ended with status $3"
  fi
  total_passed=$((total_passed + passed)) total_failed=$((total_failed + failed)) total_skipped=$((total_skipped + skipped))
  if [ "$failed" != 0 ]; then $venv/bin/python tests/junit.py failures "$2" || true; fi
  say "$1: $passed ok, $failed not ok, $skipped left out, $((SECONDS - ${4:-SECONDS})) s"
}

# step NAME COMMAND…: a single check that passes or fails; its output is shown if it fails.
step() {
  local name=$1 status=0 started=$SECONDS file=build/logs/${1// /-}.xml
  shift
  "$@" >"$file.log" 2>&1 || status=$?
  [ $status = 0 ] || tail -60 "$file.log"
  $venv/bin/python tests/junit.py single "$file" "$name" $status
  count "$name" "$file" $status $started
  return $status
}

check_format() {
  sources | xargs -r $venv/bin/clang-format --dry-run --Werror
}

# ctest_into FILE FOLDER OPTION…: ctest over a build folder, its cases in FILE.
ctest_into() {
  local status=0
  ctest --test-dir "build/$2" -j "$jobs" --timeout 300 --no-tests=error --output-on-failure --output-junit "$1" "${@:3}" >"$1.log" 2>&1 || status=$?
  [ $status = 0 ] || grep -vE ' Passed +[0-9.]+ sec$|^ *Start +[0-9]+:' "$1.log" | head -200
  return $status
}

# ctest over build folder "$2", counted under the name "$1"; more arguments choose tests.
run_ctest() {
  local status=0 started=$SECONDS file=$PWD/build/logs/$1.xml
  rm -f "$file"
  ctest_into "$file" "${@:2}" || status=$?
  count "$1" "$file" $status $started
}

# Every unit program of build/dev. Those that run whole are one test of ctest each: their cases are counted from what Catch2 wrote.
run_unit() {
  local status=0 started=$SECONDS file=$PWD/build/logs/unit.xml
  rm -f "$file" build/dev/whole/*.xml
  ctest_into "$file" dev -LE whole || status=$?
  ctest_into "$PWD/build/dev/whole-programs" dev -L whole || status=$?
  $venv/bin/python tests/junit.py whole "$file" build/dev/whole-programs build/dev/whole || status=$?
  count unit "$file" $status $started
}

# Catch2's cases tagged [.full], which ctest does not see.
run_full_unit_tests() {
  local program file status started
  for program in build/dev/bin/unit_*; do
    "$program" --list-tests '[.full]' 2>/dev/null | grep -q '^0 matching' && continue
    status=0 started=$SECONDS file=build/logs/full-$(basename "$program").xml
    timeout 3600 "$program" '[.full]' --reporter "junit::out=$file" --reporter console >"$file.log" 2>&1 || status=$?
    [ $status = 0 ] || tail -100 "$file.log"
    count "$(basename "$program") at full size" "$file" $status $started
  done
}

# pytest_into NAME OPTION…: its cases are in build/logs/NAME.xml.
pytest_into() {
  local file=build/logs/$1.xml limit=3000
  [[ " $* " != *" --all "* ]] || limit=14400
  rm -f "$file"
  EVALCAR_BUILD_DIR=build/dev timeout $limit $venv/bin/python -m pytest -qq --tb=short -o junit_family=xunit1 --junitxml="$file" "${@:2}" </dev/null
}

# run_pytest FOLDER [OPTION…]
run_pytest() {
  local status=0 started=$SECONDS
  pytest_into pytest "$@" || status=$?
  count pytest build/logs/pytest.xml $status $started
}

# Three at a time, since the tests of the agent and the faults wait more than they work: those of the agent from end to end, but for
# those whose answers models compute, which go with the models; the faults; those of the trainer's callback. Behind the latter two come the tests of models and of all else, which take what the others leave. The
# compiler has the rest of the cores, for the programs that come next.
run_pytest_beside_build() {
  local build faults rest status=0 started=$SECONDS of_models=(tests/bench tests/gpu tests/parity/models
    tests/e2e/test_{answers,answers_vlm,anytime_answers,likelihood_tasks,text_models}.py)
  local -x OMP_NUM_THREADS=1 GOMP_SPINCOUNT=10000  # threads that wait for each other do worst where others have the cores
  rm -f build/logs/*.ended
  (renice -n 19 $BASHPID && build fuzz reader_tests fuzz_targets) >build/logs/build-beside.log 2>&1 &
  build=$!
  {
    pytest_beside pytest-faults tests/faults
    renice -n 5 $BASHPID
    pytest_beside pytest-models "${of_models[@]}"
  } >build/logs/faults-beside.log 2>&1 &
  faults=$!
  {
    pytest_beside pytest-pickup tests/pickup
    renice -n 5 $BASHPID
    pytest_beside pytest-rest tests "${of_models[@]/#/--ignore=}" --ignore=tests/e2e --ignore=tests/faults --ignore=tests/pickup
  } >build/logs/pytest-beside.log 2>&1 &
  rest=$!
  pytest_into pytest tests/e2e "${of_models[@]/#/--ignore=}" || status=$?
  count "pytest of the agent" build/logs/pytest.xml $status $started
  wait $faults $rest || true
  count_beside "pytest of the callback" pytest-pickup
  count_beside "pytest of faults" pytest-faults
  count_beside "pytest of models" pytest-models
  count_beside "pytest of the rest" pytest-rest
  wait $build || true  # what is wrong with it is seen when it is called again
}

# pytest_beside NAME OPTION…: for a subshell, which cannot count.
pytest_beside() {
  local status=0 started=$SECONDS
  pytest_into "$@" >"build/logs/$1.log" 2>&1 || status=$?
  echo "$status $((SECONDS - started))" >"build/logs/$1.ended"
}

# count_beside TITLE NAME: what pytest_beside left.
count_beside() {
  local status seconds
  read -r status seconds <"build/logs/$2.ended" || true
  if [ "${status:=1}" != 0 ]; then tail -n 300 "build/logs/$2.log" || true; fi
  count "$1" "build/logs/$2.xml" "$status" $((SECONDS - ${seconds:-0}))
}

# What has threads in the agent: the HTTP API, posts to receivers, places that may hang, and signals beside them. Without what measures
# memory or five seconds, which ThreadSanitizer makes others.
threaded_tests=(tests/e2e/test_{agent,http_clients,http_jobs,posted_results,two_saves}.py tests/faults/test_{http,lifecycle}.py
  -k 'not little_memory and not sigterm_backlog')

# The agent under ThreadSanitizer, with real files, sockets and a scripted evaluator. Agents are killed by these tests, so races are
# counted from the files that they are reported to, whatever the exit codes say.
run_tsan_end_to_end() {
  local reports=$PWD/build/logs/tsan status=0 started=$SECONDS
  rm -rf "$reports"
  mkdir -p "$reports"
  TSAN_OPTIONS="log_path=$reports/race" EVALCAR_BUILD_DIR=build/tsan timeout 3600 $venv/bin/python -m pytest -qq --tb=short \
    -o junit_family=xunit1 --junitxml=build/logs/tsan-pytest.xml "${threaded_tests[@]}" </dev/null || status=$?
  count "end-to-end tests under tsan" build/logs/tsan-pytest.xml $status $started
  step "races in them" no_files_in "$reports" || true
}

no_files_in() {
  find "$1" -type f -exec cat {} +
  [ -z "$(ls "$1")" ]
}

# run_tsan [OPTION OF CTEST…]
run_tsan() {
  rm -f build/logs/*.xml
  if step "thread sanitizer build" build tsan; then
    run_ctest unit-under-tsan tsan "$@"
    run_tsan_end_to_end
  fi
  close_tests
}

run_faults() {
  local all=${1:-}
  [ -z "$all" ] || [ "$all" = --all ] || die 2 "usage: ./dev faults [--all]"
  rm -f build/logs/*.xml
  if step build build dev; then run_pytest tests/faults -rs ${all:+"$all"}; fi
  close_tests
}

# What reads the files of checkpoints, by the fuzz targets' names.
checkpoint_readers=" adapter dcp dtensor layout members pickle safetensors torch_file "

# Every fuzz target for "$1" seconds, readers of checkpoints for "$2" if given; as many at once as there are cores.
run_fuzz() {
  local target name seconds status
  step "fuzz build" build fuzz fuzz_targets || return 0
  rm -rf build/fuzz-run
  mkdir -p build/fuzz-run
  for target in build/fuzz/bin/fuzz_*; do
    [ -x "$target" ] || continue
    while [ "$(jobs -rp | wc -l)" -ge "$jobs" ]; do wait -n || true; done
    name=$(basename "$target") seconds=$1
    [[ $checkpoint_readers != *" ${name#fuzz_} "* ]] || seconds=${2:-$1}
    fuzz_one "$target" "$name" "$seconds" &
  done
  wait
  for status in build/fuzz-run/*.status; do
    [ -e "$status" ] || continue
    name=$(basename "$status" .status)
    # The last line that libFuzzer prints says how many inputs it tried.
    step "$name" report_fuzz "$name" || true
    grep -h '^Done ' "build/fuzz-run/$name.log" | sed "s/^/   $name: /" >&2 || true
  done
}

fuzz_one() {
  local corpus=build/fuzz-corpus/$2 status=0
  mkdir -p "$corpus"
  local seeds=tests/fuzz/corpus/${2#fuzz_}
  timeout $(($3 + 120)) "$1" "$corpus" $([ -d "$seeds" ] && echo "$seeds") -max_total_time="$3" -timeout=10 -rss_limit_mb=2048 \
    -artifact_prefix="build/fuzz-run/$2-" >"build/fuzz-run/$2.log" 2>&1 || status=$?
  echo $status >"build/fuzz-run/$2.status"
}

report_fuzz() {
  tail -40 "build/fuzz-run/$1.log"
  return "$(cat "build/fuzz-run/$1.status")"
}

# The closing line, alone and last, and the exit status that fits it.
close_tests() {
  echo "$total_passed passed, $total_failed failed, $total_skipped skipped"
  [ $total_failed = 0 ] && [ $total_passed != 0 ]
}

# run_tests [--all [PART…]]: a part is unit, asan, tsan, fuzz, or a folder or file of Python tests.
run_tests() {
  local all=${1:-} usage="usage: ./dev test [--all [unit | asan | tsan | fuzz | tests/PATH]…]" part
  [ -z "$all" ] || [ "$all" = --all ] || die 2 "$usage"
  local parts=("${@:2}") paths=()
  for part in "${parts[@]}"; do
    case $part in
      unit | asan | tsan | fuzz) ;;
      tests | tests/*) [ -e "$part" ] || die 2 "$part does not exist"; paths+=("$part") ;;
      *) die 2 "$usage" ;;
    esac
  done
  # Whether part "$1" is asked for: all are if none is named.
  asked() { [ ${#parts[@]} = 0 ] || [[ " ${parts[*]} " == *" $1 "* ]]; }
  rm -f build/logs/*.xml
  step format check_format || true
  if step build build dev; then
    if asked unit; then
      run_unit
      [ -z "$all" ] || run_full_unit_tests
    fi
    if [ -z "$all" ]; then run_pytest_beside_build
    elif [ ${#paths[@]} != 0 ]; then run_pytest --all "${paths[@]}"
    elif [ ${#parts[@]} = 0 ]; then run_pytest --all tests
    fi
  fi
  if [ -z "$all" ]; then
    # The fuzz targets' preset has both sanitizers, too: everything is compiled once for both.
    if step "sanitizer build" build fuzz reader_tests; then run_ctest unit-under-asan-ubsan fuzz -L unit-sidecar-reader; fi
    run_fuzz 10
  else
    if asked asan && step "sanitizer build" build asan; then run_ctest unit-under-asan-ubsan asan; fi
    if asked tsan && step "thread sanitizer build" build tsan; then
      run_ctest unit-under-tsan tsan
      run_tsan_end_to_end
    fi
    if asked fuzz; then run_fuzz 300 600; fi
    $venv/bin/python tests/record.py tests/RESULTS.md "$run_started" build/logs
  fi
  close_tests
}
