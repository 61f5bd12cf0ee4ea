#include "agent/publish/recall.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "agent/publish/foreign_json.h"
#include "agent/publish/logged_lines.h"
#include "agent/publish/logged_samples.h"
#include "agent/publish/result_record.h"

namespace evalcar::publish {
namespace {

using OrderedJson = nlohmann::ordered_json;
using state::PublishedEvaluation;

/// Lines that are read from the database at once.
constexpr std::size_t kPage = 32;

/// Of the same checkpoint, kind, tasks and settings: the later one replaced the earlier.
std::string published_identity(const PublishedEvaluation& published) {
  std::vector<std::string> tasks = published.settings.tasks;
  std::sort(tasks.begin(), tasks.end());
  return OrderedJson({published.checkpoint.name, published.generation, published.kind, tasks,
                      state::settings_sha256(published.settings, published.dtype)})
      .dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

}  // namespace

/// First the database is asked what it knows, and all lines are read, then those that the database
/// lacks are judged, newest first, since a later one stands for an earlier one; then they are
/// taken, oldest first: the newest number is the current. Samples are read last: those of one
/// evaluation may be a gigabyte.
struct Recall::State {
  const FileSystem& files;
  std::string dir;
  state::Store& store;
  state::Run run;
  Recalled recalled = {};

  struct Line {
    std::int64_t seq = 0;
    std::string key;
    std::string text;
    bool elsewhere = false;  ///< its run has another name
  };
  std::set<std::string> keys = {};         ///< of lines that are known
  bool begun = false;                      ///< all of those were asked for
  std::int64_t known_through = 0;          ///< the seq of the last of them, before that
  std::optional<LoggedLines> unread = {};  ///< while they are read
  std::vector<Line> lines = {};            ///< that may lack in the database
  std::set<std::int64_t> replaced = {};    ///< lines that a later one stands for
  std::size_t judged = 0;                  ///< of `lines`, from the end
  std::set<std::string> identities = {};
  std::map<std::int64_t, PublishedEvaluation> found = {};  ///< by seq; not yet taken
  std::optional<LoggedSamples> samples = {};               ///< of the first of them, being read

  /// One piece of work; false: there is none left.
  Result<bool> work();
  Status begin();
  void read_some();
  void keep(LoggedLine line);
  void judge_one();
  Status take_some();
  void leave(std::int64_t seq, const Error& why);
};

Result<bool> Recall::State::work() {
  if (!begun) EVALCAR_RETURN_IF_ERROR(begin());
  if (!begun) return true;
  if (unread.has_value()) {
    read_some();
  } else if (judged < lines.size()) {
    judge_one();
  } else if (!found.empty()) {
    EVALCAR_RETURN_IF_ERROR(take_some());
  }
  return unread.has_value() || judged < lines.size() || !found.empty();
}

Status Recall::State::begin() {
  EVALCAR_ASSIGN_OR_RETURN(const auto known,
                           store.read().publications_after(run.id, known_through, kPage));
  for (const state::Publication& publication : known) {
    keys.insert(text_of(OrderedJson::parse(publication.line, nullptr, false), "evaluation"));
    known_through = publication.seq;
  }
  begun = known.size() < kPage;
  if (!begun) return {};
  auto opened = LoggedLines::open(files, dir);
  if (opened.has_value()) {
    unread.emplace(std::move(*opened));
  } else {
    recalled.left.push_back(opened.error().message);
  }
  return {};
}

/// Where they cannot be read on, those that were read are judged.
void Recall::State::read_some() {
  std::optional<LoggedLine> line;
  const auto more = unread->step(line);
  if (!more.has_value()) recalled.left.push_back(more.error().message);
  if (line.has_value()) keep(std::move(*line));
  if (!more.has_value() || !*more) unread.reset();
}

void Recall::State::keep(LoggedLine line) {
  if (const auto seq = integer_of(line.json, "supersedes")) replaced.insert(*seq);
  const auto is_final = line.json.find("final");
  if (is_final != line.json.end() && *is_final == false) return;  // the score of a part
  std::string key = text_of(line.json, "evaluation");
  const bool elsewhere = text_of(line.json, "run") != run.name;
  if ((elsewhere && run.mark.empty()) || key.empty() || keys.contains(key)) return;
  lines.push_back({line.seq, std::move(key), std::move(line.text), elsewhere});
}

void Recall::State::leave(std::int64_t seq, const Error& why) {
  if (replaced.contains(seq)) return;
  recalled.left.push_back("line " + std::to_string(seq) + ": " + why.message);
}

void Recall::State::judge_one() {
  const Line& line = lines[lines.size() - ++judged];
  if (!keys.insert(line.key).second) return;
  auto published = published_of(files, dir, run, line.text);
  if (!published.has_value() && line.elsewhere) return;  // as most that lie in a publish.dir
  if (!published.has_value()) return leave(line.seq, published.error());
  if (!identities.insert(published_identity(*published)).second) return;
  found.emplace(line.seq, std::move(published).value());
}

Status Recall::State::take_some() {
  const std::int64_t seq = found.begin()->first;
  PublishedEvaluation& published = found.begin()->second;
  if (!samples.has_value()) samples.emplace(files, published);
  const auto more = samples->step();
  if (more.has_value() && *more) return {};
  samples.reset();
  if (!more.has_value()) {
    leave(seq, more.error());
  } else {
    EVALCAR_ASSIGN_OR_RETURN(const bool taken, store.take_published(run.id, published));
    recalled.taken += taken ? 1 : 0;
  }
  found.erase(found.begin());
  return {};
}

Recall::Recall(const FileSystem& files, std::string dir, state::Store& store, state::Run run)
    : state_(std::make_unique<State>(State{files, std::move(dir), store, std::move(run)})) {}
Recall::~Recall() = default;
Recall::Recall(Recall&&) noexcept = default;
Recall& Recall::operator=(Recall&&) noexcept = default;

const Recalled& Recall::recalled() const { return state_->recalled; }

Result<bool> Recall::step(const std::function<bool()>& enough) {
  while (true) {
    EVALCAR_ASSIGN_OR_RETURN(const bool more, state_->work());
    if (!more) return true;
    if (enough()) return false;
  }
}

Result<Recalled> recall_published(const FileSystem& files, const std::string& dir,
                                  state::Store& store, const state::Run& run) {
  Recall recall(files, dir, store, run);
  EVALCAR_ASSIGN_OR_RETURN([[maybe_unused]] const bool done, recall.step([] { return false; }));
  return recall.recalled();
}

}  // namespace evalcar::publish
