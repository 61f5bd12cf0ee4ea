#include "evaluator/text/tokenizer.h"

#include <algorithm>
#include <mutex>
#include <nlohmann/json.hpp>
#include <unordered_map>
#include <utility>

#include "evaluator/text/added_tokens.h"
#include "evaluator/text/bpe.h"
#include "evaluator/text/json_fields.h"
#include "evaluator/text/normalizer.h"
#include "evaluator/text/post_processor.h"
#include "evaluator/text/pre_tokenizer.h"
#include "evaluator/text/token_decoder.h"
#include "evaluator/text/tokenizer_config.h"
#include "evaluator/text/unicode.h"

namespace evalcar::text {
namespace {

constexpr std::uint64_t kMaxFileBytes = 256ULL * 1024 * 1024;
constexpr std::size_t kMaxTextBytes = std::size_t{16} << 20U;  // four million tokens
constexpr std::size_t kMaxCachedPieces = 20'000;
constexpr std::size_t kMaxCachedPieceBytes = 64;

Status check_together(const Normalizer& normalizer, const PreTokenizer& cutter,
                      const TokenDecoder& decoder) {
  if (cutter.is_byte_level() != decoder.is_byte_level())
    return make_error(ErrorCode::kUnsupported,
                      std::string("ByteLevel is in the ") +
                          (decoder.is_byte_level() ? "decoder" : "pre_tokenizer") +
                          " alone, not in the " +
                          (decoder.is_byte_level() ? "pre_tokenizer" : "decoder"));
  // tokenizers asks where a piece comes from, which what is inserted or taken together blurs.
  if (!normalizer.is_empty() && cutter.asks_for_begin())
    return make_error(ErrorCode::kUnsupported,
                      "pre_tokenizer Metaspace with prepend_scheme \"first\" after a normalizer is "
                      "not supported");
  return {};
}

}  // namespace

struct Tokenizer::State {
  BpeModel model;
  Normalizer normalizer;
  PreTokenizer pre_tokenizer;
  TokenDecoder decoder;
  AddedTokens added;
  bool split_special_tokens = false;
  std::optional<std::int32_t> bos, eos, pad;
  Surroundings around;

  // Ids of pieces seen before. Whoever finds it in use goes without.
  mutable std::mutex cache_mutex;
  mutable std::unordered_map<std::string, std::vector<std::int32_t>> cache;

  State(BpeModel bpe, Normalizer before, PreTokenizer cutter, TokenDecoder after)
      : model(std::move(bpe)),
        normalizer(std::move(before)),
        pre_tokenizer(std::move(cutter)),
        decoder(std::move(after)) {}

  /// As decode() spells it; nothing of an id that is no token's.
  std::optional<std::string_view> spelled(std::int32_t id) const {
    const AddedToken* const token = added.by_id(id);
    return token == nullptr ? model.token_of(id) : added.shown_content(*token);
  }

  /// Whether decode() leaves it out with the special ones: told by the text that is shown, as in
  /// tokenizers.
  bool is_skipped(std::int32_t id, std::string_view token) const {
    if (added.by_id(id) == nullptr) return false;
    const auto shown = added.id_of(token);
    return shown && added.by_id(*shown)->special;
  }

  Status add(AddedToken token) {
    EVALCAR_RETURN_IF_ERROR(added.check(token));
    EVALCAR_ASSIGN_OR_RETURN(std::string content, normalizer.apply(token.content));
    return added.add(std::move(token), model, std::move(content));
  }

  Status add_special(const std::string& content) {
    AddedToken token;
    if (const auto id = added.id_of(content)) token = *added.by_id(*id);
    token.content = content;
    token.special = true;
    return add(std::move(token));
  }

  Status add_all(const nlohmann::json& file, const TokenizerConfig& config) {
    if (const auto it = file.find("added_tokens"); it != file.end() && it->is_array()) {
      for (const auto& item : *it) {
        auto token = parse_added_token(item);
        if (!token)
          return make_error(ErrorCode::kCorruption, "added_tokens: an entry without content");
        EVALCAR_RETURN_IF_ERROR(add(std::move(*token)));
      }
    }
    for (const AddedToken& token : config.added_tokens) EVALCAR_RETURN_IF_ERROR(add(token));
    for (const auto& [name, content] : config.named_tokens)
      EVALCAR_RETURN_IF_ERROR(add_special(content));
    for (const std::string& content : config.additional_tokens)
      EVALCAR_RETURN_IF_ERROR(add_special(content));
    return added.finish();
  }

  void encode_piece(const std::string& piece, bool use_cache,
                    std::vector<std::int32_t>& out) const {
    if (!use_cache || piece.size() > kMaxCachedPieceBytes) return model.encode(piece, out);
    auto it = cache.find(piece);
    if (it == cache.end()) {
      std::vector<std::int32_t> ids;
      model.encode(piece, ids);
      if (cache.size() >= kMaxCachedPieces) {
        out.insert(out.end(), ids.begin(), ids.end());
        return;
      }
      it = cache.emplace(piece, std::move(ids)).first;
    }
    out.insert(out.end(), it->second.begin(), it->second.end());
  }

  /// `is_begin`: nothing stands before this part of the text. `room`: bytes that may still come of
  /// the whole text.
  Status encode_text(std::string_view text, bool is_begin, bool use_cache, std::size_t& room,
                     std::vector<std::int32_t>& out) const {
    EVALCAR_ASSIGN_OR_RETURN(const std::string normal, normalizer.apply(text));
    if (normal.size() > room)
      return make_error(ErrorCode::kInvalidArgument, "the normalizer makes a text of more than " +
                                                         std::to_string(kMaxTextBytes) +
                                                         " bytes, which are encoded at once");
    room -= normal.size();
    for (const Section& section : added.cut(normal, true, split_special_tokens)) {
      if (section.id >= 0) {
        out.push_back(section.id);
        continue;
      }
      const auto part = std::string_view(normal).substr(section.begin, section.end - section.begin);
      EVALCAR_ASSIGN_OR_RETURN(const auto pieces,
                               pre_tokenizer.split(part, is_begin && section.begin == 0));
      for (const std::string& piece : pieces) encode_piece(piece, use_cache, out);
    }
    return {};
  }
};

Tokenizer::Tokenizer(std::unique_ptr<State> state) : state_(std::move(state)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

Result<Tokenizer> Tokenizer::load(const FileSystem& files, const std::string& dir) {
  const std::string path = join_path(dir, "tokenizer.json");
  EVALCAR_ASSIGN_OR_RETURN(const auto text, read_optional(files, path, kMaxFileBytes));
  if (!text)
    return make_error(ErrorCode::kNotFound,
                      path +
                          " does not exist. It is written by tokenizer.save_pretrained() and "
                          "processor.save_pretrained() of transformers (fast tokenizers); copy it "
                          "from the base model if the trainer does not save it");
  EVALCAR_ASSIGN_OR_RETURN(const TokenizerConfig config, load_tokenizer_config(files, dir));
  auto tokenizer = parse(*text, config);
  if (!tokenizer) return with_context(std::move(tokenizer).error(), path);
  return tokenizer;
}

Result<Tokenizer> Tokenizer::parse(const std::string& tokenizer_json,
                                   const TokenizerConfig& config) {
  EVALCAR_ASSIGN_OR_RETURN(const nlohmann::json file, parse_json(tokenizer_json, "the file"));
  if (!file.is_object()) return make_error(ErrorCode::kCorruption, "not a JSON object");
  const nlohmann::json none;
  const auto field = [&](const char* name) -> const nlohmann::json& {
    const auto it = file.find(name);
    return it == file.end() ? none : *it;
  };
  if (!file.contains("model")) return make_error(ErrorCode::kCorruption, "no \"model\"");
  EVALCAR_ASSIGN_OR_RETURN(Normalizer normalizer, Normalizer::parse(field("normalizer")));
  EVALCAR_ASSIGN_OR_RETURN(PreTokenizer cutter, PreTokenizer::parse(field("pre_tokenizer")));
  EVALCAR_ASSIGN_OR_RETURN(TokenDecoder decoder, TokenDecoder::parse(field("decoder")));
  EVALCAR_RETURN_IF_ERROR(check_together(normalizer, cutter, decoder));
  EVALCAR_ASSIGN_OR_RETURN(
      BpeModel model,
      BpeModel::parse(file["model"],
                      cutter.is_byte_level() ? Spelling::kByteLetters : Spelling::kCharacters));
  auto state = std::make_unique<State>(std::move(model), std::move(normalizer), std::move(cutter),
                                       std::move(decoder));
  EVALCAR_RETURN_IF_ERROR(state->add_all(file, config));

  state->split_special_tokens = config.split_special_tokens;
  Tokenizer tokenizer(std::move(state));
  const auto named = [&](const char* name) -> std::optional<std::int32_t> {
    const auto it = config.named_tokens.find(name);
    return it == config.named_tokens.end() ? std::nullopt : tokenizer.id_of(it->second);
  };
  tokenizer.state_->eos = named("eos_token");
  tokenizer.state_->pad = named("pad_token");
  tokenizer.state_->bos = named("bos_token");

  Surroundings& around = tokenizer.state_->around;
  // As in transformers, add_bos_token and add_eos_token of tokenizer_config.json do not count
  // beside a tokenizer.json.
  EVALCAR_ASSIGN_OR_RETURN(around, read_post_processor(field("post_processor")));
  for (const auto* ids : {&around.before, &around.after}) {
    for (const std::int32_t id : *ids) {
      if (id >= tokenizer.size())
        return make_error(ErrorCode::kCorruption, "post_processor: id " + std::to_string(id) +
                                                      " is no token's; there are " +
                                                      std::to_string(tokenizer.size()));
    }
  }
  return tokenizer;
}

Result<std::vector<std::int32_t>> Tokenizer::encode(std::string_view text,
                                                    bool add_special_tokens) const {
  if (text.size() > kMaxTextBytes)
    return make_error(ErrorCode::kInvalidArgument,
                      "a text of " + std::to_string(text.size()) + " bytes; at most " +
                          std::to_string(kMaxTextBytes) + " are encoded at once");
  std::string repaired;
  if (!is_valid_utf8(text)) {
    repaired = replace_invalid_utf8(text);
    text = repaired;
  }
  const std::unique_lock lock(state_->cache_mutex, std::try_to_lock);
  std::vector<std::int32_t> ids;
  std::size_t room = kMaxTextBytes;
  if (add_special_tokens) ids = state_->around.before;
  for (const Section& section : state_->added.cut(text, false, state_->split_special_tokens)) {
    if (section.id >= 0) {
      ids.push_back(section.id);
    } else {
      EVALCAR_RETURN_IF_ERROR(
          state_->encode_text(text.substr(section.begin, section.end - section.begin),
                              section.begin == 0, lock.owns_lock(), room, ids));
    }
  }
  if (add_special_tokens)
    ids.insert(ids.end(), state_->around.after.begin(), state_->around.after.end());
  return ids;
}

std::string Tokenizer::decode(std::span<const std::int32_t> ids, bool skip_special) const {
  std::vector<std::string> tokens;
  tokens.reserve(ids.size());
  for (const std::int32_t id : ids) {
    const auto token = state_->spelled(id);
    if (token && !(skip_special && state_->is_skipped(id, *token))) tokens.emplace_back(*token);
  }
  return state_->decoder.decode(std::move(tokens));
}

std::size_t Tokenizer::begin_of_bytes(std::span<const std::int32_t> ids, std::size_t at) const {
  const auto joins = [&](std::int32_t id) {
    const auto token = state_->spelled(id);
    return token && (state_->decoder.is_named_byte(*token) || state_->is_skipped(id, *token));
  };
  while (at > 0 && at < ids.size() && joins(ids[at]) && joins(ids[at - 1])) --at;
  return at;
}

std::optional<std::int32_t> Tokenizer::id_of(std::string_view token) const {
  if (const auto added = state_->added.id_of(token)) return added;
  return state_->model.id_of(token);
}

bool Tokenizer::is_special(std::int32_t id) const {
  const AddedToken* added = state_->added.by_id(id);
  return added != nullptr && added->special;
}

std::optional<std::int32_t> Tokenizer::eos_id() const { return state_->eos; }
std::optional<std::int32_t> Tokenizer::bos_id() const { return state_->bos; }
std::optional<std::int32_t> Tokenizer::pad_id() const { return state_->pad; }

std::int32_t Tokenizer::size() const {
  return std::max(state_->model.largest_id(), state_->added.largest_id()) + 1;
}

}  // namespace evalcar::text
