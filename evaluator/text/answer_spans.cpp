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

/// Where the first message's answer begins in `through`, which is that message alone: behind the
/// first place of what the template writes as a generation prompt. The messages before it, none,
/// cannot be rendered to see: many templates then fail, or leave out a system prompt of their own.
Result<std::size_t> begin_of_first(const ChatTemplate& chat_template,
                                   const std::vector<Message>& messages, const std::string& through,
                                   ContentForm form) {
  EVALCAR_ASSIGN_OR_RETURN(const std::string prompted,
                           render_first(chat_template, messages, 1, true, form));
  const bool adds = prompted.size() > through.size() && prompted.starts_with(through);
  const std::string prompt = adds ? prompted.substr(through.size()) : std::string();
  const std::size_t at = adds ? through.find(prompt) : std::string::npos;
  if (at == std::string::npos)
    return make_error(ErrorCode::kInvalidArgument,
                      "message 0 is the assistant's, and the chat template writes no generation "
                      "prompt before it by which its answer could be told; let the conversation "
                      "begin with the system or the user");
  return at + prompt.size();
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
    EVALCAR_ASSIGN_OR_RETURN(const std::string through,
                             render_first(chat_template, messages, i + 1, false, form));
    std::size_t begin = 0;
    if (i == 0) {
      EVALCAR_ASSIGN_OR_RETURN(begin, begin_of_first(chat_template, messages, through, form));
    } else {
      EVALCAR_ASSIGN_OR_RETURN(const std::string before,
                               render_first(chat_template, messages, i, true, form));
      if (!through.starts_with(before)) return not_a_beginning(i);
      begin = before.size();
    }
    if (!found.text.starts_with(through)) return not_a_beginning(i);
    found.answers.insert(found.answers.begin(), {begin, through.size()});
    if (last_only) break;
  }
  return found;
}

}  // namespace evalcar::text
