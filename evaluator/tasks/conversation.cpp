#include "evaluator/tasks/conversation.h"

#include <algorithm>
#include <initializer_list>
#include <optional>
#include <utility>

namespace evalcar::tasks {
namespace {

constexpr std::size_t kMostMessages = 10'000;

Error wrong(const std::string& what) { return make_error(ErrorCode::kCorruption, what); }

Status only_keys(const Value& object, std::initializer_list<const char*> known) {
  for (const auto& item : object.items()) {
    if (item.value().is_null()) continue;  // a Parquet struct has every key in every row
    const std::string& key = item.key();
    if (std::none_of(known.begin(), known.end(), [&](const char* k) { return key == k; }))
      return wrong("has \"" + key + "\", which is not supported: what it says would be left out");
  }
  return {};
}

std::optional<std::string> text_of(const Value& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_string()) return std::nullopt;
  return found->get<std::string>();
}

class Reader {
 public:
  Reader(std::vector<std::string> pictures, const ReadImage& read_image)
      : pictures_(std::move(pictures)), read_image_(read_image) {}

  Result<Conversation> read(const Value& messages) {
    for (std::size_t i = 0; i < messages.size(); ++i) {
      Status added = add(messages[i]);
      if (!added.has_value())
        return with_context(std::move(added).error(), "message " + std::to_string(i));
    }
    if (std::ranges::none_of(out_.messages, is_answer))
      return wrong("no message of the role \"assistant\", so nothing to score");
    if (next_ < pictures_.size())
      return wrong("the document has " + std::to_string(pictures_.size()) +
                   " pictures, and its messages show " + std::to_string(next_) +
                   " of them: each needs a part {\"type\": \"image\"}");
    return std::move(out_);
  }

 private:
  static bool is_answer(const text::Message& message) { return message.role == "assistant"; }

  Status add(const Value& message) {
    if (!message.is_object()) return wrong("is no object with \"role\" and \"content\"");
    EVALCAR_RETURN_IF_ERROR(only_keys(message, {"role", "content"}));
    const auto role = text_of(message, "role");
    if (!role.has_value()) return wrong("has no text under \"role\"");
    text::Message read{*role, {}};
    const auto content = message.find("content");
    if (content != message.end() && content->is_string()) {
      read.content.push_back({text::Content::Type::kText, content->get<std::string>()});
    } else if (content != message.end() && content->is_array()) {
      for (const Value& part : *content) EVALCAR_RETURN_IF_ERROR(add_part(part, read));
    } else {
      return wrong("has neither a text nor a list of parts under \"content\"");
    }
    out_.messages.push_back(std::move(read));
    return {};
  }

  Status add_part(const Value& part, text::Message& message) {
    const auto type = part.is_object() ? text_of(part, "type") : std::nullopt;
    if (!type.has_value()) return wrong("has a part without a \"type\"");
    if (*type == "text") {
      EVALCAR_RETURN_IF_ERROR(only_keys(part, {"type", "text"}));
      const auto text = text_of(part, "text");
      if (!text.has_value()) return wrong("has a part of type text without a text");
      message.content.push_back({text::Content::Type::kText, *text});
      return {};
    }
    if (*type != "image" && *type != "image_url")
      return wrong("has a part of type \"" + *type + "\"; expected text, image or image_url");
    EVALCAR_RETURN_IF_ERROR(only_keys(part, {"type", "image", "path", "url", "image_url"}));
    EVALCAR_RETURN_IF_ERROR(add_picture(part));
    message.content.push_back({text::Content::Type::kImage, {}});
    return {};
  }

  Status add_picture(const Value& part) {
    std::optional<std::string> name;
    for (const char* key : {"image", "path", "url", "image_url"}) {
      const auto found = part.find(key);
      if (found == part.end() || found->is_null() || name.has_value()) continue;
      name = found->is_object() ? text_of(*found, "url") : text_of(part, key);
      if (!name.has_value())
        return wrong(std::string("has a picture whose \"") + key + "\" is no path and no URL");
    }
    if (!name.has_value()) {
      if (next_ == pictures_.size())
        return wrong("shows a picture without a name, and the document has " +
                     std::to_string(pictures_.size()) + " in [columns] images");
      out_.images.push_back(std::move(pictures_[next_++]));
      return {};
    }
    EVALCAR_ASSIGN_OR_RETURN(std::string bytes, read_image_(*name));
    out_.images.push_back(std::move(bytes));
    return {};
  }

  std::vector<std::string> pictures_;
  std::size_t next_ = 0;  // of pictures_
  const ReadImage& read_image_;
  Conversation out_;
};

}  // namespace

Result<Conversation> read_conversation(const Value& messages, std::vector<std::string> pictures,
                                       const ReadImage& read_image) {
  Value list = messages;
  if (messages.is_string()) {
    EVALCAR_ASSIGN_OR_RETURN(list, parse_json(messages.get_ref<const std::string&>()));
  }
  if (!list.is_array() || list.empty())
    return wrong("expected a list of messages, each with \"role\" and \"content\"");
  if (list.size() > kMostMessages)
    return wrong(std::to_string(list.size()) + " messages; at most " +
                 std::to_string(kMostMessages) + " are read");
  return Reader(std::move(pictures), read_image).read(list);
}

}  // namespace evalcar::tasks
