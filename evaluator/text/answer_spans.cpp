#include "evaluator/text/answer_spans.h"

#include <string>
#include <utility>

namespace evalcar::text {
namespace {

Result<std::string> render_first(const ChatTemplate& chat_template,
                                 const std::vector<Message>& messages, std::size_t count,
                                 bool generation_prompt, ContentForm form) {
  const std::vector<Message> first(messages.begin(),
                                   messages.begin() + static_cast<std::ptrdiff_t>(count));
  auto text = chat_template.render(first, generation_prompt, form);
  if (!text.has_value())
    return with_context(std::move(text).error(),
                        "the first " + std::to_string(count) + " messages");
  return text;
}

Error not_a_beginning(std::size_t message) {
  return make_error(
      ErrorCode::kInvalidArgument,
      "message " + std::to_string(message) +
          ": the chat template renders it otherwise when more follows, so what of the "
          "conversation is its answer is not known; [request] answers = \"last\" "
          "scores the last answer alone");
}

}  // namespace

Result<ChatTemplate::Marked> render_with_answers(const ChatTemplate& chat_template,
                                                 const std::vector<Message>& messages,
                                                 ContentForm form, bool last_only) {
  ChatTemplate::Marked found;
  if (chat_template.marks_answers()) {
    EVALCAR_ASSIGN_OR_RETURN(found, chat_template.render_marked(messages, form));
    if (last_only && !found.answers.empty()) found.answers = {found.answers.back()};
    return found;
  }
  EVALCAR_ASSIGN_OR_RETURN(found.text, chat_template.render(messages, false, form));
  for (std::size_t i = messages.size(); i-- > 0;) {
    if (messages[i].role != "assistant") continue;
    EVALCAR_ASSIGN_OR_RETURN(const std::string before,
                             render_first(chat_template, messages, i, true, form));
    EVALCAR_ASSIGN_OR_RETURN(const std::string through,
                             render_first(chat_template, messages, i + 1, false, form));
    if (!through.starts_with(before) || !found.text.starts_with(through)) return not_a_beginning(i);
    found.answers.insert(found.answers.begin(), {before.size(), through.size()});
    if (last_only) break;
  }
  return found;
}

}  // namespace evalcar::text
