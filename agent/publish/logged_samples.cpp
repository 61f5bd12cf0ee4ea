#include "agent/publish/logged_samples.h"

#include <nlohmann/json.hpp>

#include "agent/publish/foreign_json.h"

namespace evalcar::publish {
namespace {

constexpr std::uint64_t kMaxSampleBytes = std::uint64_t{1} << 30U;
constexpr std::string_view kResultsEnding = "_results.json";

}  // namespace

LoggedSamples::LoggedSamples(const FileSystem& files, state::PublishedEvaluation& published)
    : files_(files),
      published_(published),
      results_(published.files.front()),
      left_bytes_(kMaxSampleBytes) {
  published_.files.clear();
}

Result<bool> LoggedSamples::step() {
  if (task_ == published_.result.tasks.size()) {
    published_.files.push_back(results_);
    return false;
  }
  if (!reader_.has_value()) {
    EVALCAR_RETURN_IF_ERROR(begin_file());
    if (!reader_.has_value()) ++task_;
    return true;
  }
  EVALCAR_ASSIGN_OR_RETURN(const LineReader::Found found, reader_->next());
  switch (found) {
    case LineReader::Found::kLine:
      EVALCAR_RETURN_IF_ERROR(take_sample());
      break;
    case LineReader::Found::kTooLong:
      return make_error(ErrorCode::kCorruption, path_ + ": a line longer than any of ours");
    case LineReader::Found::kPiece:
      break;
    case LineReader::Found::kEnd:
      reader_.reset();
      ++task_;
      break;
  }
  return true;
}

/// Of task(), if it has one.
Status LoggedSamples::begin_file() {
  if (!task().error.empty()) return {};
  path_ = results_;
  if (path_.ends_with(kResultsEnding)) path_.resize(path_.size() - kResultsEnding.size());
  path_.append("_samples_").append(task().task).append(".jsonl");
  auto reader = LineReader::open(
      files_, path_, {.file_bytes = left_bytes_, .line_bytes = protocol::kMaxLineBytes});
  if (!reader.has_value()) {
    if (reader.error().code == ErrorCode::kNotFound) return {};
    return reader.error();
  }
  published_.files.push_back(path_);
  left_bytes_ -= reader->file_bytes();
  reader_ = std::move(*reader);
  return {};
}

Status LoggedSamples::take_sample() {
  protocol::Scored sample;
  sample.task = task().task;
  sample.fingerprint = task().fingerprint;
  sample.line = reader_->take_line();
  const auto doc = integer_of(parse_shallow(sample.line), "doc_id");
  if (!doc.has_value()) {
    return make_error(ErrorCode::kCorruption, path_ + ": a line without doc_id");
  }
  sample.doc_id = *doc;
  published_.samples.push_back(std::move(sample));
  return {};
}

}  // namespace evalcar::publish
