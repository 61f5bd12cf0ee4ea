// What preparing a task gives: all that is needed to ask a model its documents and to score the
// answers, but for the pictures' pixels. It is the same for every checkpoint of a model.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "evaluator/engine/engine.h"
#include "evaluator/service/read_record.h"
#include "evaluator/vision/prepare.h"
#include "store/base/hash.h"

namespace evalcar::service {

/// Where a picture stands that a prompt shows, what it is, and its size as the model reads it.
struct PreparedPicture {
  std::int64_t doc_id = 0;
  std::size_t position = 0;  ///< among the pictures of that document's prompt
  Sha256Digest digest = {};  ///< of its encoded bytes
  vision::PreparedSize size;
  bool is_cut_off = false;  ///< vision::is_cut_off()
};

struct PreparedDocument {
  std::int64_t doc_id = 0;
  std::string json;   ///< Task::document_json(): what it is scored by
  std::string input;  ///< Prompt::input
  /// Tokens and scoring alone: the rest is the evaluation's to fill in. None where nothing of it is
  /// asked.
  std::vector<engine::Request> requests;
  std::vector<std::size_t> pictures;  ///< of its prompt, by their place in PreparedTask::pictures
  bool cut = false;                   ///< behind [request] max_length
};

struct PreparedTask {
  std::int64_t size = 0;         ///< documents in the split
  std::string data_fingerprint;  ///< Task::data_fingerprint()
  std::int64_t shots = 0;        ///< examples before each question
  std::vector<PreparedPicture> pictures;
  std::vector<PreparedDocument> documents;  ///< those that were chosen, ascending
  std::vector<ReadFile> read;               ///< what all this was made of
};

}  // namespace evalcar::service
