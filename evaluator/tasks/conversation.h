// A conversation of the chat format, as trainers read it: a list of {"role", "content"}, where a
// content is a text or a list of parts.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "evaluator/tasks/python_json.h"
#include "evaluator/text/chat_template.h"
#include "store/base/result.h"

namespace evalcar::tasks {

struct Conversation {
  std::vector<text::Message> messages;
  std::vector<std::string> images;  ///< encoded, in order of appearance
};

/// Reads a picture that a part names: a path beside the data, or a data: URL.
using ReadImage = std::function<Result<std::string>(std::string_view name)>;

/// `messages`: the list, or its JSON as a text (as Parquet files hold it). Parts are {"type":
/// "text", "text"}, {"type": "image"} with the picture's name under "image", "path" or "url", or
/// {"type": "image_url", "image_url": {"url"}}; an image part without a name takes the next of
/// `pictures` (the document's own columns). kCorruption names the message and what is wrong with
/// it: another key or type of part (it would be left out of the loss without a word), no answer of
/// the assistant, pictures that no part takes.
Result<Conversation> read_conversation(const Value& messages, std::vector<std::string> pictures,
                                       const ReadImage& read_image);

}  // namespace evalcar::tasks
