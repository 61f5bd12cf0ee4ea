// The page: curves, scores and evaluations of one run, from one document (page_data.h), which lies in the page itself, or is
// asked for where a server tells by events what is new. Text from outside goes into the document as text only.
"use strict";

const KINDS = ["regular", "ema", "average"];
const KIND_NAMES = {regular: "regular", ema: "EMA", average: "average"};
const ENDED = ["published", "skipped", "superseded", "lost", "quarantined"];
const RETRIED = ["failed", "quarantined"];
const CANCELLED = ["found", "complete", "leased", "loading", "evaluating", "failed"];
const PASSED_OVER = ["skipped", "superseded"];
const PINNED = ["complete", "leased", "loading", "evaluating", "scored", "published"];
const SAMPLES_A_PAGE = 20;
const CONFIDENCE = 1.96;
const MOST_ENDED = 50;

const byId = (id) => document.getElementById(id);
const color = (name) => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();

function element(tag, text, className) {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  return made;
}

function duration(seconds) {
  const whole = Math.round(seconds);
  if (!Number.isFinite(whole) || whole < 0) return "";
  const units = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];
  const parts = [];
  let rest = whole;
  for (const [size, name] of units) {
    if (rest >= size && parts.length < 2) parts.push(Math.floor(rest / size) + " " + name);
    rest %= size;
  }
  return parts.join(" ") || "0 s";
}

const metricName = (row) => (row.filter === "none" ? row.metric : row.metric + "," + row.filter);

// Task and metric → kind → step → row.
function seriesOf(metrics) {
  const all = new Map();
  for (const row of metrics) {
    const name = row.task + " · " + metricName(row);
    if (!all.has(name)) all.set(name, new Map());
    const kinds = all.get(name);
    if (!kinds.has(row.checkpoint_type)) kinds.set(row.checkpoint_type, new Map());
    kinds.get(row.checkpoint_type).set(row.step, row);
  }
  return all;
}

const kindsOf = (series) => KINDS.filter((kind) => series.has(kind));

function stepsOf(series) {
  const steps = new Set();
  for (const rows of series.values()) for (const step of rows.keys()) steps.add(step);
  return [...steps].sort((a, b) => a - b);
}

// Numbers that were measured with other settings than today's, or of another question, are shown, but belong to no curve and are never the best.
const isOther = (row) => row.configured === false;
const hasOthers = (rows) => [...rows.values()].some((row) => isOther(row) && row.value !== null);

function bestStep(rows) {
  let best = null;
  for (const row of rows.values()) {
    if (row.value === null || isOther(row)) continue;
    const better = best === null || (row.higher_is_better ? row.value > best.value : row.value < best.value);
    if (better) best = row;
  }
  return best === null ? null : best.step;
}

const numberText = (value) => (value === null ? "N/A" : value.toFixed(4));

// Its legend writes inline styles, which our policy forbids; ours is text below the plot.
Dygraph.PLUGINS = Dygraph.PLUGINS.filter((plugin) => plugin !== Dygraph.Plugins.Legend);

// ---- curves: one plot a task and metric, kept and fed with new data, so that a zoom stays

const plots = new Map();

// A column for each kind, and one for each that has numbers of other settings: points without a line.
const columnsOf = (series) => [
  ...kindsOf(series).map((kind) => ({kind, other: false, label: KIND_NAMES[kind]})),
  ...kindsOf(series).filter((kind) => hasOthers(series.get(kind)))
    .map((kind) => ({kind, other: true, label: KIND_NAMES[kind] + ", other settings"})),
];
const columnKey = (series) => columnsOf(series).map((column) => column.label).join();

function plotData(series) {
  const columns = columnsOf(series);
  return stepsOf(series).map((step) => [step, ...columns.map(({kind, other}) => {
    const row = series.get(kind).get(step);
    if (!row || row.value === null || isOther(row) !== other) return [null, null, null];
    const half = other ? 0 : CONFIDENCE * (row.stderr || 0);  // no band between points that have no line
    return [row.value - half, row.value, row.value + half];
  })]);
}

const lookOf = (series) => Object.fromEntries(columnsOf(series).map(({kind, other, label}) =>
  [label, other ? {color: color("quiet"), strokeWidth: 0} : {color: color(kind), strokeWidth: 2}]));

// The intervals as bars at each point (dygraphs itself fills bands): drawn over the plot, since points are few.
function drawBars(context, area, plot) {
  const series = plot.evalcarSeries;
  kindsOf(series).forEach((kind) => {
    context.lineWidth = 1.2;
    for (const [step, row] of series.get(kind)) {
      if (row.value === null || !row.stderr) continue;
      context.strokeStyle = color(isOther(row) ? "quiet" : kind);
      const half = CONFIDENCE * row.stderr;
      const x = plot.toDomXCoord(step);
      const top = plot.toDomYCoord(row.value + half);
      const bottom = plot.toDomYCoord(row.value - half);
      context.beginPath();
      context.moveTo(x, top);
      context.lineTo(x, bottom);
      for (const end of [top, bottom]) {
        context.moveTo(x - 4, end);
        context.lineTo(x + 4, end);
      }
      context.stroke();
    }
  });
}

// One entry a kind, with its colour; `textOf(kind)` is null where there is nothing to say.
function showLegend(place, series, before, textOf) {
  const entries = before ? [element("span", before)] : [];
  for (const kind of kindsOf(series)) {
    const text = textOf(series.get(kind));
    if (text === null) continue;
    const entry = element("span");
    entry.append(element("i", "", "mark " + kind), KIND_NAMES[kind] + " " + text);
    entries.push(entry);
  }
  place.replaceChildren(...entries);
}

const showBest = (place, series) => showLegend(place, series, "", (rows) => {
  const step = bestStep(rows);
  return step === null ? "no number" : "best " + numberText(rows.get(step).value) + " at step " + step;
});

const showStep = (place, series, step) => showLegend(place, series, "step " + step, (rows) => {
  const row = rows.get(step);
  if (!row || row.value === null) return null;
  return numberText(row.value) + (row.stderr === null ? "" : " ± " + row.stderr.toFixed(4)) + " (n " + row.n + ")" +
    (isOther(row) ? ", other settings" : "");
});

function makePlot(name, series) {
  const panel = element("div", undefined, "curve");
  panel.append(element("h3", name));
  const place = element("div", undefined, "plot");
  place.setAttribute("role", "img");
  const text = element("p", "", "legend");
  panel.append(place, text);
  byId("curves").append(panel);
  const plot = new Dygraph(place, plotData(series), {
    labels: ["step", ...columnsOf(series).map((column) => column.label)],
    series: lookOf(series), customBars: true, fillAlpha: 0.1, drawPoints: true, pointSize: 3,
    connectSeparatedPoints: true, gridLineColor: color("grid"), axisLineColor: color("line"),
    xRangePad: 12, axes: {x: {axisLabelWidth: 60, pixelsPerLabel: 60}, y: {axisLabelWidth: 45}},
    highlightCallback: (event, x) => { showStep(text, plot.evalcarSeries, x); },
    unhighlightCallback: () => { showBest(text, plot.evalcarSeries); },
    underlayCallback: (context, area, of) => { if (of.evalcarSeries) drawBars(context, area, of); },
  });
  plot.evalcarColumns = columnKey(series);
  return {plot, panel, place, text};
}

function showCurves(all) {
  for (const [name, made] of plots) {
    if (all.has(name) && made.plot.evalcarColumns === columnKey(all.get(name))) continue;
    made.plot.destroy();
    made.panel.remove();
    plots.delete(name);
  }
  for (const [name, series] of all) {
    if (!plots.has(name)) plots.set(name, makePlot(name, series));
    const made = plots.get(name);
    made.plot.evalcarSeries = series;
    made.plot.updateOptions({file: plotData(series)});
    showBest(made.text, series);
    made.place.setAttribute("aria-label", name + ": " + made.text.textContent);
  }
  if (all.size === 0 && !byId("curves").firstChild) byId("curves").append(element("p", "No numbers yet.", "empty"));
  if (all.size > 0) for (const hint of byId("curves").querySelectorAll(".empty")) hint.remove();
}

function recolour() {
  for (const {plot} of plots.values()) {
    plot.updateOptions({series: lookOf(plot.evalcarSeries), gridLineColor: color("grid"), axisLineColor: color("line")});
  }
}

// ---- tables

function fill(table, head, rows) {
  const thead = element("thead");
  const line = element("tr");
  for (const [text, className] of head) {
    const cell = element("th", text, className);
    cell.scope = "col";
    line.append(cell);
  }
  thead.append(line);
  const body = element("tbody");
  body.append(...rows);
  table.replaceChildren(thead, body);
}

const rowOfCell = new WeakMap();

function showScores(all) {
  const columns = [];
  for (const [name, series] of all) {
    for (const kind of kindsOf(series)) columns.push({name, kind, rows: series.get(kind), best: bestStep(series.get(kind))});
  }
  const steps = new Set();
  for (const column of columns) for (const step of column.rows.keys()) steps.add(step);
  const rows = [...steps].sort((a, b) => b - a).map((step) => {
    const line = element("tr");
    const head = element("th", String(step));
    head.scope = "row";
    line.append(head);
    for (const column of columns) {
      const row = column.rows.get(step);
      const mark = column.best === step ? " ★" : row && isOther(row) ? " †" : "";
      const cell = element("td", row ? numberText(row.value) + mark : "");
      if (row && row.stderr !== null) cell.append(" ", element("small", "± " + row.stderr.toFixed(4)));
      if (row && row.missing) cell.title = row.missing;
      if (column.best === step) cell.className = "best";
      if (row && isOther(row)) cell.className = "other";
      cell.tabIndex = -1;
      if (row) rowOfCell.set(cell, row);
      line.append(cell);
    }
    return line;
  });
  byId("other-hint").hidden = !columns.some((column) => hasOthers(column.rows));
  const table = byId("scores");
  const held = place(table, document.activeElement);
  fill(table, [["step"], ...columns.map((c) => [c.name + " · " + KIND_NAMES[c.kind]])], rows);
  const first = table.querySelector("td");
  if (first) first.tabIndex = 0;
  if (held) focusCell(table, held.row, held.column);
}

function place(table, cell) {
  const line = cell && cell.closest ? cell.closest("#" + table.id + " tbody tr") : null;
  return line ? {row: line.sectionRowIndex, column: cell.cellIndex} : null;
}

function focusCell(table, row, column) {
  const lines = table.tBodies[0] ? table.tBodies[0].rows : [];
  const line = lines[Math.max(0, Math.min(row, lines.length - 1))];
  const cell = line && line.cells[Math.max(1, Math.min(column, line.cells.length - 1))];
  if (!cell) return;
  for (const other of table.querySelectorAll("td[tabindex='0']")) other.tabIndex = -1;
  cell.tabIndex = 0;
  cell.focus();
}

function moveByKeys(event) {
  const moves = {ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1]};
  const move = moves[event.key];
  const at = move && place(event.currentTarget, event.target);
  if (!at) return;
  event.preventDefault();
  focusCell(event.currentTarget, at.row + move[0], at.column + move[1]);
}

// In words what a person may do about it; only where a server does it.
function actionButton(row, action, fields) {
  const button = element("button", action);
  button.type = "button";
  button.setAttribute("aria-label", action + " step " + row.step + " " + (KIND_NAMES[row.checkpoint_type] || row.checkpoint_type));
  button.addEventListener("click", () => change(action, fields));
  return button;
}

function evaluationLine(row) {
  const line = element("tr");
  const head = element("th", String(row.step));
  head.scope = "row";
  const state = element("td", row.state, row.state + " text");
  const progress = element("td", Math.floor(100 * row.progress) + " %");
  // Beside the state: a phone shows them without being scrolled sideways.
  if (live.on && RETRIED.includes(row.state)) state.append(" ", actionButton(row, "retry", {step: row.step}));
  if (live.on && PINNED.includes(row.state)) {
    const action = live.pinned.includes(row.step) ? "unpin" : "pin";
    state.append(" ", actionButton(row, action, {step: row.step}));
  }
  if (live.on && CANCELLED.includes(row.state)) state.append(" ", actionButton(row, "cancel", {evaluation: row.evaluation_id}));
  line.append(head, element("td", KIND_NAMES[row.checkpoint_type] || row.checkpoint_type, "text"), state, progress,
              element("td", row.tasks.join(", "), "text"), element("td", row.reason || "", "text wrap"));
  return line;
}

function showQueue(status) {
  const evaluations = status.evaluations;
  const ended = (row) => ENDED.includes(row.state);
  const open = evaluations.filter((row) => !ended(row));
  const rest = evaluations.filter(ended).reverse().slice(0, MOST_ENDED);
  fill(byId("queue"), [["step"], ["weights", "text"], ["state", "text"], ["progress"], ["tasks", "text"], ["reason", "text"]],
       [...open, ...rest].map(evaluationLine));
  if (evaluations.length === 0) byId("queue").replaceChildren(element("caption", "Nothing yet.", "empty"));
  byId("queue-controls").hidden = !live.on || !PASSED_OVER.some((state) => status.states[state]);
  if (status.open_left_out) byId("queue").prepend(element("caption", status.open_left_out + " more wait, of lower steps.", "empty"));
}

function showAgent(status, live) {
  const agent = status.agent;
  const facts = [];
  if (!agent) {
    facts.push(live ? "no agent runs" : "a copy, not live");
  } else {
    facts.push("running for " + duration(agent.uptime_s), "version " + agent.version);
    if (agent.device) facts.push("on " + agent.device);
  }
  if (status.lag_steps !== null && status.lag_steps !== undefined) {
    const waits = status.lag_seconds >= 1 ? ", " + duration(status.lag_seconds) : "";
    facts.push("lag " + status.lag_steps + " steps" + waits);
  }
  byId("agent").textContent = facts.join(" · ");
  byId("warning").textContent = (agent && agent.warning) || "";
  byId("warning").hidden = !(agent && agent.warning);
  const current = agent && agent.current;
  byId("now").hidden = !current;
  if (!current) return;
  const task = current.task ? " " + current.task : "";
  const rate = current.per_second && current.stage !== "loading" ? ", " + current.per_second.toFixed(1) + "/s" : "";
  const left = current.seconds_left === null ? "" : ", " + duration(current.seconds_left) + " left";
  byId("now-text").textContent = "step " + current.step + " " + (KIND_NAMES[current.checkpoint_type] || current.checkpoint_type) +
      ": " + current.stage + task + " " + current.done + "/" + current.total + rate + left;
  byId("now-bar").value = current.total > 0 ? current.done / current.total : 0;
}

function showStatus(page) {
  document.title = "evalcar " + (page.run || "");
  byId("run").textContent = page.run || "";
  byId("told").textContent = "As of " + page.status.time + ".";
  showAgent(page.status, page.live);
  live.pinned = (page.status.agent && page.status.agent.pinned) || [];
  const focused = document.activeElement && document.activeElement.getAttribute("aria-label");
  showQueue(page.status);
  const same = (label) => label.replace(/^unpin/, "pin");  // the button that it became
  const again = focused && [...byId("queue").querySelectorAll("button")].find((b) => same(b.getAttribute("aria-label")) === same(focused));
  if (again) again.focus();
}

function show(page) {
  const all = seriesOf(page.metrics);
  showStatus(page);
  showCurves(all);
  showScores(all);
}

// ---- the server: what is new, samples, and what may be asked of it

const live = {pinned: [], on: false, run: "", version: null, numbers: new Map(), asking: false, events: null, timer: 0};
const samples = {row: null, offset: 0, asked: 0};

const query = (fields) => "?" + new URLSearchParams(fields).toString();

// Where the page was opened with a password in its address, whatever is relative to that has it, too, and is refused.
const placeOf = (path) => new URL(path, location.origin + location.pathname).href;

async function ask(path, options) {
  const answer = await fetch(placeOf(path), options);
  const document_ = await answer.json().catch(() => ({}));
  if (answer.ok) return document_;
  throw new Error(typeof document_.detail === "string" ? document_.detail : "the server answered " + answer.status);
}

function tell(text) {
  byId("told").textContent = text;
}

async function refresh() {
  if (live.asking) return;
  live.asking = true;
  try {
    const asked = live.run;
    const page = await ask("page/data" + query({run: asked, since: live.version || ""}));
    if (asked !== live.run) return;  // another one was chosen meanwhile
    if (!page.run) throw new Error("There is no run yet");
    take(page);
    live.version = page.version;
    live.run = page.run;  // of an output directory that was made anew: its run of now
    showRuns(page.runs);
    show(page);
    if (samples.row && page.run !== asked) closeSamples();
  } finally {
    live.asking = false;
  }
}

// All numbers, or those that changed since the version that we have.
function take(page) {
  if (page.since === undefined || page.since !== live.version) live.numbers.clear();
  for (const row of page.metrics) live.numbers.set(JSON.stringify([row.step, row.checkpoint_type, row.task, row.metric, row.filter]), row);
  page.metrics = [...live.numbers.values()];
}

function showRuns(runs) {
  const all = runs.includes(live.run) || !live.run ? runs : [live.run, ...runs];
  byId("runs-label").hidden = all.length < 2;
  const choice = byId("runs");
  choice.replaceChildren(...all.map((run) => new Option(run, run, false, run === live.run)));
}

function listen() {
  stopListening();
  const events = new EventSource(placeOf("page/events" + query({run: live.run})));
  live.events = events;
  events.onmessage = (event) => {
    const news = JSON.parse(event.data);
    if (news.gone) {
      showRuns(news.runs);
      beginAgain(0);
    } else if (news.run !== live.run) {
      beginAgain(0);  // the run that took its place
    } else if (news.version === live.version) {
      showStatus(news);
    } else {
      refresh().catch((error) => tell(error.message));
    }
  };
  events.onerror = () => {
    tell("The server tells nothing; trying again.");
    if (events.readyState === EventSource.CLOSED) beginAgain(15000);
  };
}

function stopListening() {
  if (live.events) live.events.close();
  live.events = null;
}

// One attempt at a time, whatever asked for it.
function beginAgain(milliseconds) {
  stopListening();
  clearTimeout(live.timer);
  live.timer = setTimeout(begin, milliseconds);
}

async function begin() {
  try {
    await refresh();
    listen();
  } catch (error) {
    tell(error.message + "; trying again.");
    beginAgain(5000);
  }
}

async function change(action, fields) {
  try {
    const headers = {"Content-Type": "application/json"};
    const body = JSON.stringify({run: live.run, ...fields});
    for (let more = true; more;) {
      const answer = await ask("page/" + action, {method: "POST", headers, body});
      byId("answer").textContent = answer.text;
      more = answer.more;
    }
  } catch (error) {
    byId("answer").textContent = error.message;
  }
}

function pictureButton(picture, label) {
  const gone = element("span", label + " is not kept", "gone");
  gone.title = "limits.sample_pictures is 0 or full, its disk is full, or it was pruned";
  if (!picture.kept) return gone;
  const button = element("button", undefined, "picture");
  button.type = "button";
  button.title = "a click or Enter: larger, or small again";
  button.setAttribute("aria-pressed", "false");
  const image = element("img");
  image.loading = "lazy";
  image.alt = label;
  image.addEventListener("load", () => image.classList.add("loaded"));
  image.addEventListener("error", () => button.replaceWith(gone));
  image.src = placeOf("page/pictures/" + picture.name);
  button.append(image);
  button.addEventListener("click", () => {
    button.setAttribute("aria-pressed", String(button.classList.toggle("large")));
  });
  return button;
}

function pictureRow(sample) {
  const row = element("div", undefined, "pictures");
  const count = sample.pictures.length;
  row.append(...sample.pictures.map((picture, at) => pictureButton(
    picture, "picture " + (count > 1 ? at + 1 + " of " + count + " " : "") + "of document " + sample.doc_id)));
  return row;
}

function sampleItem(sample, before) {
  const item = element("li", undefined, sample.right === null ? "" : sample.right ? "right" : "wrong");
  const score = sample.score === null ? "no score" : "score " + numberText(sample.score);
  item.append(element("h3", "document " + sample.doc_id + " · " + score));
  if (sample.pictures) item.append(pictureRow(sample));
  const list = element("dl");
  const parts = [["prompt", sample.prompt], ["answer", sample.answer], ["expected", sample.expected]];
  if (sample.answer_before !== undefined) parts.push(["at step " + before, sample.answer_before + " (score " + numberText(sample.score_before) + ")"]);
  for (const [name, text] of parts) {
    if (text !== "" || name === "answer") list.append(element("dt", name), element("dd", text));
  }
  item.append(list);
  return item;
}

function showSamples(page) {
  const kind = KIND_NAMES[page.checkpoint_type] || page.checkpoint_type;
  byId("samples-title").textContent = "Samples of step " + page.step + " " + kind + ", " + page.task + " · " + page.metric;
  const end = page.offset + page.samples.length;
  const range = page.matching === 0 ? "none" : (page.offset + 1) + " to " + end + " of " + page.matching;
  const against = page.before === null ? "" : ", flipped since step " + page.before;
  byId("samples-range").textContent = range + against + (page.note ? " (" + page.note + ")" : "");
  byId("samples-list").replaceChildren(...page.samples.map((sample) => sampleItem(sample, page.before)));
  const focused = document.activeElement;
  byId("samples-earlier").disabled = page.offset === 0;
  byId("samples-later").disabled = end >= page.matching;
  if (focused && focused.disabled) byId("samples-title").focus();  // or the focus would be nowhere
}

async function leaf(offset) {
  const row = samples.row;
  if (!row) return;
  samples.offset = Math.max(0, offset);
  const asked = ++samples.asked;
  const fields = {run: live.run, evaluation: row.evaluation, task: row.task, metric: row.metric,
                  filter: byId("samples-filter").value, offset: samples.offset};
  try {
    const page = await ask("page/samples" + query(fields));
    if (asked === samples.asked) showSamples(page);
  } catch (error) {
    byId("samples-range").textContent = error.message;
    byId("samples-list").replaceChildren();
  }
}

function openSamples(cell) {
  const row = rowOfCell.get(cell.closest("td"));
  if (!row || !live.on) return;
  samples.row = row;
  const at = place(byId("scores"), cell);
  focusCell(byId("scores"), at.row, at.column);
  byId("samples").hidden = false;
  leaf(0).then(() => byId("samples-title").focus());
}

function closeSamples() {
  samples.row = null;
  byId("samples").hidden = true;
  const cell = byId("scores").querySelector("td[tabindex='0']");
  if (cell) cell.focus();
}

function startLive() {
  live.on = true;
  document.body.classList.add("live");
  byId("samples-hint").hidden = false;
  const table = byId("scores");
  table.addEventListener("click", (event) => { if (event.target.closest("td")) openSamples(event.target); });
  table.addEventListener("keydown", (event) => { if (event.key === "Enter" && event.target.closest("td")) openSamples(event.target); });
  byId("samples-filter").addEventListener("change", () => leaf(0));
  byId("samples-earlier").addEventListener("click", () => leaf(samples.offset - SAMPLES_A_PAGE));
  byId("samples-later").addEventListener("click", () => leaf(samples.offset + SAMPLES_A_PAGE));
  byId("samples-close").addEventListener("click", closeSamples);
  byId("backfill").addEventListener("click", () => change("backfill", {}));
  document.addEventListener("keydown", (event) => { if (event.key === "Escape" && samples.row) closeSamples(); });
  byId("runs").addEventListener("change", (event) => {
    live.run = event.target.value;
    live.version = null;
    closeSamples();
    beginAgain(0);
  });
  begin();
}

function start() {
  byId("scores").addEventListener("keydown", moveByKeys);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", recolour);
  const licence = byId("licence-text");
  if (licence) byId("licence").textContent = JSON.parse(licence.textContent);
  const here = byId("page-data");
  if (here) show(JSON.parse(here.textContent));
  else startLive();
}

start();
