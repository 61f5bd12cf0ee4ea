// The checkpoint's own chat template, rendered as transformers' apply_chat_template(tokenize=False)
// does.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "store/base/file_system.h"
#include "store/base/result.h"

namespace evalcar::text {

struct Content {
  enum class Type { kText, kImage };
  Type type = Type::kText;
  std::string text;  ///< of kText
  bool operator==(const Content&) const = default;
};

struct Message {
  std::string role;
  std::vector<Content> content;
  bool operator==(const Message&) const = default;
};

/// How a message's content is handed to the template.
enum class ContentForm {
  kParts,  ///< a list of parts, as templates of models that take pictures expect it
  kText,   ///< one text, its parts joined by a newline, as templates of text models do
};

/// Immutable after load; thread-safe.
class ChatTemplate {
 public:
  /// From chat_template.jinja, chat_template.json or tokenizer_config.json, in transformers' order
  /// of preference.
  static Result<ChatTemplate> load(const FileSystem& files, const std::string& dir);
  /// From the template's source. kUnsupported names a construct that is not known, with its line.
  static Result<ChatTemplate> parse(std::string_view source, std::string_view name);
  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;
  ~ChatTemplate();

  /// The prompt. kInvalidArgument with the template's own words where it calls raise_exception, and
  /// for a picture in a content of kText.
  Result<std::string> render(const std::vector<Message>& messages, bool add_generation_prompt,
                             ContentForm form = ContentForm::kParts) const;
  struct Marked {
    std::string text;
    std::vector<std::pair<std::size_t, std::size_t>> answers;  ///< bytes [first, second) of `text`
  };
  /// Whether what it renders depends on the time: it calls strftime_now.
  bool tells_time() const;
  /// Whether the template says by {% generation %} what the assistant's answers are.
  bool marks_answers() const;
  /// render() without a generation prompt, and what the generation blocks put out. kInvalidArgument
  /// where such a block stands inside a macro or a captured block: its place is not known then.
  Result<Marked> render_marked(const std::vector<Message>& messages, ContentForm form) const;
  /// The same with the variables as one JSON object ("messages", "add_generation_prompt", "tools",
  /// …): for tests and tools.
  Result<std::string> render_json(std::string_view variables_json) const;

 private:
  struct State;
  explicit ChatTemplate(std::unique_ptr<State> state);
  Result<Marked> run(std::string_view variables_json, bool mark) const;
  std::unique_ptr<State> state_;
};

}  // namespace evalcar::text
