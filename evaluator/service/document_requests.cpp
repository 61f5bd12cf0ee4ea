#include "evaluator/service/document_requests.h"

#include <algorithm>
#include <string>

#include "evaluator/metrics/python_text.h"
#include "evaluator/text/answer_spans.h"

namespace evalcar::service {
namespace {

using Ids = std::vector<std::int32_t>;

constexpr std::int64_t kLmEvalMaxLength = 2048;  // where a model does not say

Error wrong(const std::string& what) { return make_error(ErrorCode::kCorruption, what); }

/// Every picture stands in the rendered prompt as one placeholder; the model reads one per merged
/// patch. `scored`: of each id; may be empty.
struct Expanded {
  Ids ids;
  std::vector<bool> scored;
};

Result<Expanded> expand_placeholders(const Ids& ids, const std::vector<bool>& scored,
                                     std::int32_t placeholder,
                                     const std::vector<std::int64_t>& counts) {
  Expanded out;
  std::size_t next = 0;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const bool is_scored = !scored.empty() && scored[i] && ids[i] != placeholder;
    std::size_t copies = 1;
    if (ids[i] == placeholder) {
      copies = next < counts.size() ? static_cast<std::size_t>(counts[next]) : 0;
      ++next;
    }
    out.ids.insert(out.ids.end(), copies, ids[i]);
    out.scored.insert(out.scored.end(), copies, is_scored);
  }
  if (next != counts.size())
    return wrong("the prompt has " + std::to_string(next) + " picture placeholders for " +
                 std::to_string(counts.size()) +
                 " pictures: the chat template does not fit, or the text itself contains the "
                 "placeholder token");
  return out;
}

/// Length of the text without the blanks at its end, as Python's rstrip().
std::size_t without_blanks(std::string_view text) {
  const metrics::Text decoded = metrics::decode_utf8(text);
  std::size_t end = decoded.size();
  while (end > 0 && metrics::is_space(decoded[end - 1])) --end;
  return text.size() - metrics::encode_utf8(metrics::TextView(decoded).substr(end)).size();
}

Result<std::int32_t> prefix_token(const text::Tokenizer& tokenizer) {
  const auto token = tokenizer.bos_id().has_value() ? tokenizer.bos_id() : tokenizer.eos_id();
  if (token.has_value()) return *token;
  return make_error(ErrorCode::kInvalidArgument,
                    "tokenizer_config.json: neither bos_token nor eos_token, and a text needs one "
                    "before its first token");
}

std::vector<engine::TokenSpan> spans_of(const std::vector<bool>& scored) {
  std::vector<engine::TokenSpan> spans;
  for (std::size_t i = 1; i < scored.size(); ++i) {  // nothing stands before token 0
    if (!scored[i]) continue;
    const auto place = static_cast<std::int64_t>(i);
    if (spans.empty() || spans.back().end != place) spans.push_back({place, place});
    ++spans.back().end;
  }
  return spans;
}

class Maker {
 public:
  Maker(const RequestEncoder& encoder, const tasks::RequestDefinition& kind,
        const tasks::Prompt& prompt, const std::vector<std::int64_t>& placeholders)
      : encoder_(encoder),
        tokenizer_(encoder.model.tokenizer),
        kind_(kind),
        prompt_(prompt),
        placeholders_(placeholders) {}

  Result<DocumentRequests> make() const {
    switch (kind_.kind) {
      case tasks::RequestKind::kGenerate:
        return generated();
      case tasks::RequestKind::kLoss:
        return conversation();
      case tasks::RequestKind::kRolling:
        return rolling();
      default:
        return continuations();
    }
  }

 private:
  Result<std::string> rendered() const {
    return encoder_.model.chat_template.render(encoder_.wrapper.wrapped(prompt_.messages), true,
                                               encoder_.wrapper.content);
  }

  Result<Expanded> expanded(const Ids& ids, const std::vector<bool>& scored = {}) const {
    return expand_placeholders(ids, scored, encoder_.image_token_id, placeholders_);
  }

  static DocumentRequests one(engine::Request request) {
    DocumentRequests out;
    out.requests.push_back(std::move(request));
    return out;
  }

  Result<DocumentRequests> generated() const {
    EVALCAR_ASSIGN_OR_RETURN(const std::string text, rendered());
    EVALCAR_ASSIGN_OR_RETURN(const Ids ids, tokenizer_.encode(text));
    EVALCAR_ASSIGN_OR_RETURN(Expanded prompt, expanded(ids));
    engine::Request request;
    request.tokens = std::move(prompt.ids);
    return one(std::move(request));
  }

  Result<DocumentRequests> continuations() const {
    std::string context = prompt_.input;
    if (!kind_.plain) {
      EVALCAR_ASSIGN_OR_RETURN(context, rendered());
    }
    engine::Request request;
    engine::Scoring& scoring = request.scoring.emplace();
    Ids shared;
    for (const std::string& continuation : prompt_.continuations) {
      EVALCAR_ASSIGN_OR_RETURN(auto pair, pair_of(context, continuation));
      if (pair.second.empty())
        return wrong("the continuation \"" + continuation + "\" is no token");
      shared = std::move(pair.first);
      scoring.continuations.push_back(std::move(pair.second));
    }
    EVALCAR_ASSIGN_OR_RETURN(Expanded prompt, expanded(shared));
    request.tokens = std::move(prompt.ids);
    return one(std::move(request));
  }

  Result<std::pair<Ids, Ids>> pair_of(std::string_view context,
                                      std::string_view continuation) const {
    if (!context.empty()) return encode_pair(tokenizer_, context, continuation);
    std::pair<Ids, Ids> pair;
    EVALCAR_ASSIGN_OR_RETURN(const std::int32_t prefix, prefix_token(tokenizer_));
    EVALCAR_ASSIGN_OR_RETURN(pair.second, tokenizer_.encode(continuation, false));
    pair.first = {prefix};
    return pair;
  }

  /// The template of a text model gets one text a message; how several would be joined only it
  /// could say.
  Status check_parts() const {
    if (encoder_.wrapper.content != text::ContentForm::kText) return {};
    for (std::size_t i = 0; i < prompt_.messages.size(); ++i) {
      if (prompt_.messages[i].content.size() > 1)
        return wrong("message " + std::to_string(i) + " has " +
                     std::to_string(prompt_.messages[i].content.size()) +
                     " parts; a text model's message is one text");
    }
    return {};
  }

  Result<DocumentRequests> conversation() const {
    EVALCAR_RETURN_IF_ERROR(check_parts());
    EVALCAR_ASSIGN_OR_RETURN(
        const text::ChatTemplate::Marked marked,
        text::render_with_answers(encoder_.model.chat_template, prompt_.messages,
                                  encoder_.wrapper.content, kind_.last_answer_only));
    EVALCAR_ASSIGN_OR_RETURN(const Ids ids, tokenizer_.encode(marked.text, false));
    std::vector<bool> scored(ids.size());
    for (const auto& [begin, end] : marked.answers) {
      EVALCAR_ASSIGN_OR_RETURN(const auto span,
                               tokens_of_bytes(tokenizer_, marked.text, ids, begin, end));
      const std::size_t last = encoder_.model.chat_template.marks_answers()
                                   ? span.second
                                   : end_of_turn(ids, span.first, span.second);
      std::fill(scored.begin() + static_cast<std::ptrdiff_t>(span.first),
                scored.begin() + static_cast<std::ptrdiff_t>(last), true);
    }
    EVALCAR_ASSIGN_OR_RETURN(Expanded whole, expanded(ids, scored));
    if (spans_of(whole.scored).empty())
      return wrong("none of its " + std::to_string(whole.ids.size()) +
                   " tokens is the assistant's");
    DocumentRequests out;
    EVALCAR_ASSIGN_OR_RETURN(out.cut, cut_to_length(whole));
    std::vector<engine::TokenSpan> spans = spans_of(whole.scored);
    if (spans.empty()) return out;
    engine::Request& request = out.requests.emplace_back();
    request.scoring.emplace().spans = std::move(spans);
    request.tokens = std::move(whole.ids);
    return out;
  }

  /// Whether something of it is behind [request] max_length. Where nothing that is scored stands
  /// before that, nothing is read, so that a picture may be cut off, too.
  Result<bool> cut_to_length(Expanded& whole) const {
    const auto length = static_cast<std::int64_t>(whole.ids.size());
    if (!kind_.max_length.has_value() || length <= *kind_.max_length) return false;
    const auto most = static_cast<std::ptrdiff_t>(*kind_.max_length);
    const bool cuts_pictures =
        encoder_.image_token_id >= 0 && std::find(whole.ids.begin() + most, whole.ids.end(),
                                                  encoder_.image_token_id) != whole.ids.end();
    whole.ids.resize(static_cast<std::size_t>(most));
    whole.scored.resize(static_cast<std::size_t>(most));
    if (cuts_pictures && !spans_of(whole.scored).empty())
      return wrong("of its " + std::to_string(length) + " tokens [request] max_length = " +
                   std::to_string(most) + " would cut a picture off");
    return true;
  }

  /// What the template writes behind the token that ends a turn (ChatML's newline) is never
  /// generated: the model stops at that token.
  std::size_t end_of_turn(const Ids& ids, std::size_t begin, std::size_t end) const {
    std::size_t last = end;
    while (last > begin && !tokenizer_.is_special(ids[last - 1])) --last;
    if (last == begin) return end;
    const std::string behind =
        tokenizer_.decode(std::span(ids).subspan(last, end - last), /*skip_special=*/false);
    return metrics::strip_utf8(behind).empty() ? last : end;
  }

  Result<DocumentRequests> rolling() const {
    EVALCAR_ASSIGN_OR_RETURN(const Ids ids, tokenizer_.encode(prompt_.input, false));
    if (ids.empty()) return wrong("an empty text");
    EVALCAR_ASSIGN_OR_RETURN(const std::int32_t prefix, prefix_token(tokenizer_));
    const std::int64_t by_model =
        encoder_.max_positions > 1 ? encoder_.max_positions : kLmEvalMaxLength;
    DocumentRequests out;
    out.requests = rolling_windows(ids, prefix, kind_.max_length.value_or(by_model));
    return out;
  }

  const RequestEncoder& encoder_;
  const text::Tokenizer& tokenizer_;
  const tasks::RequestDefinition& kind_;
  const tasks::Prompt& prompt_;
  const std::vector<std::int64_t>& placeholders_;
};

}  // namespace

Result<DocumentRequests> RequestEncoder::requests_of(
    const tasks::RequestDefinition& kind, const tasks::Prompt& prompt,
    const std::vector<std::int64_t>& placeholders) const {
  return Maker(*this, kind, prompt, placeholders).make();
}

Result<std::pair<Ids, Ids>> encode_pair(const text::Tokenizer& tokenizer, std::string_view context,
                                        std::string_view continuation) {
  const std::size_t kept = without_blanks(context);
  const std::string whole = std::string(context) + std::string(continuation);
  std::pair<Ids, Ids> pair;
  EVALCAR_ASSIGN_OR_RETURN(pair.first, tokenizer.encode(context.substr(0, kept), false));
  EVALCAR_ASSIGN_OR_RETURN(const Ids both, tokenizer.encode(whole, false));
  if (both.size() > pair.first.size())
    pair.second.assign(both.begin() + static_cast<std::ptrdiff_t>(pair.first.size()), both.end());
  return pair;
}

std::vector<engine::Request> rolling_windows(const Ids& tokens, std::int32_t prefix,
                                             std::int64_t max_length) {
  const auto count = static_cast<std::int64_t>(tokens.size());
  std::vector<engine::Request> windows;
  // The last token of [begin, end) is scored last; what stands before `scored` is only read.
  const auto add = [&](std::int64_t begin, std::int64_t end, std::int64_t scored) {
    engine::Request& window = windows.emplace_back();
    if (begin < 0) window.tokens.push_back(prefix);
    window.tokens.insert(window.tokens.end(), tokens.begin() + std::max<std::int64_t>(begin, 0),
                         tokens.begin() + end);
    const auto size = static_cast<std::int64_t>(window.tokens.size());
    window.scoring.emplace().spans = {{size - scored, size}};
  };
  std::int64_t done = std::min(max_length, count);
  if (done > 0) add(-1, done, done);
  while (done < count) {
    const std::int64_t next = std::min(count - done, max_length);
    done += next;
    add(done - max_length - 1, done, next);
  }
  return windows;
}

namespace {

/// `behind`, less the tokens that are nothing but further bytes of the text's last character.
std::size_t behind_last_character(const text::Tokenizer& tokenizer, std::string_view text,
                                  const Ids& ids, std::size_t first, std::size_t behind) {
  std::size_t at = text.size();
  while (at > 0 && (static_cast<unsigned char>(text[at - 1]) >> 6U) == 2U) --at;
  if (at == 0 || at == text.size()) return behind;  // of one byte
  const std::string_view character = text.substr(at - 1);
  for (std::size_t k = 1; k <= character.size() && first + k <= behind; ++k) {
    const auto tokens = std::span(ids).subspan(behind - k, k);
    if (tokenizer.decode(tokens, /*skip_special=*/false).ends_with(character))
      return behind - k + 1;
  }
  return behind;
}

}  // namespace

Result<std::pair<std::size_t, std::size_t>> tokens_of_bytes(const text::Tokenizer& tokenizer,
                                                            std::string_view text, const Ids& ids,
                                                            std::size_t begin, std::size_t end) {
  // Tokens of the beginning that are also the whole's end before the place, or at it.
  const auto before = [&](std::size_t place) -> Result<std::pair<std::size_t, bool>> {
    EVALCAR_ASSIGN_OR_RETURN(const Ids first, tokenizer.encode(text.substr(0, place), false));
    const auto at = std::ranges::mismatch(first, ids);
    return std::pair(static_cast<std::size_t>(at.in1 - first.begin()), at.in1 != first.end());
  };
  EVALCAR_ASSIGN_OR_RETURN(const auto first, before(begin));
  EVALCAR_ASSIGN_OR_RETURN(const auto last, before(end));
  const std::size_t behind = std::min(ids.size(), last.first + (last.second ? 1 : 0));
  return std::pair(first.first, behind_last_character(tokenizer, text.substr(begin, end - begin),
                                                      ids, first.first, behind));
}

}  // namespace evalcar::service
