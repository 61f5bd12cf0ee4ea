#include "store/checkpoint/torchtitan_names.h"

#include <algorithm>
#include <array>
#include <optional>
#include <vector>

#include "store/checkpoint/lora_names.h"
#include "store/checkpoint/model_config.h"
#include "store/checkpoint/numeric.h"

namespace evalcar::checkpoint {
namespace {

struct NamePair {
  std::string_view theirs;
  std::string_view ours;
};

constexpr std::array<NamePair, 4> kAtTop = {{{"tok_embeddings.weight", "model.embed_tokens.weight"},
                                             {"norm.weight", "model.norm.weight"},
                                             {"output.weight", "lm_head.weight"},
                                             {"lm_head.weight", "lm_head.weight"}}};
constexpr std::string_view kLayers = "layers.";
constexpr std::string_view kProjections = "attention.qkv_linear.";  // since 0.3
constexpr std::string_view kOldProjections = "attention.";
constexpr std::string_view kQuery = "wq.weight";
constexpr std::string_view kKey = "wk.weight";
constexpr std::array<NamePair, 3> kOfProjections = {{{kQuery, "self_attn.q_proj.weight"},
                                                     {kKey, "self_attn.k_proj.weight"},
                                                     {"wv.weight", "self_attn.v_proj.weight"}}};
constexpr std::array<NamePair, 6> kOfLayer = {
    {{"attention.wo.weight", "self_attn.o_proj.weight"},
     {"feed_forward.w1.weight", "mlp.gate_proj.weight"},
     {"feed_forward.w3.weight", "mlp.up_proj.weight"},
     {"feed_forward.w2.weight", "mlp.down_proj.weight"},
     {"attention_norm.weight", "input_layernorm.weight"},
     {"ffn_norm.weight", "post_attention_layernorm.weight"}}};
constexpr std::array<NamePair, 2> kOfQwen3 = {
    {{"attention.q_norm.weight", "self_attn.q_norm.weight"},
     {"attention.k_norm.weight", "self_attn.k_norm.weight"}}};
constexpr std::int64_t kLeastHead = 8;  ///< rows; smaller ones no model has
/// Pieces of a plan that heads may make beside four for each one that there was: several times what
/// the largest model needs. A sparse file states any size.
constexpr std::uint64_t kMostNewPieces = 200'000;

template <std::size_t N>
std::optional<std::string_view> look_up(const std::array<NamePair, N>& names,
                                        std::string_view name) {
  for (const NamePair& pair : names) {
    if (pair.theirs == name) return pair.ours;
  }
  return std::nullopt;
}

/// A name below a layer without what comes before the projections; empty if it is none of them.
std::string_view projection_of(std::string_view name) {
  for (const std::string_view prefix : {kProjections, kOldProjections}) {
    if (!name.starts_with(prefix)) continue;
    const std::string_view rest = name.substr(prefix.size());
    return look_up(kOfProjections, rest) ? rest : std::string_view();
  }
  return {};
}

/// "layers.12.attention.wq.weight" cut into its layer and what is below; both empty for another.
struct LayerName {
  std::string_view layer;  ///< digits
  std::string_view rest;
};

LayerName layer_name(std::string_view name) {
  if (!name.starts_with(kLayers)) return {};
  const std::size_t dot = name.find('.', kLayers.size());
  if (dot == std::string_view::npos) return {};
  const std::string_view layer = name.substr(kLayers.size(), dot - kLayers.size());
  if (layer.empty() || layer.find_first_not_of("0123456789") != std::string_view::npos) return {};
  return {layer, name.substr(dot + 1)};
}

/// The family's numbers; `heads` of 0: not stated.
struct Family {
  std::string model_type;
  std::uint64_t heads = 0;
  std::uint64_t key_value_heads = 0;

  bool is_llama() const { return model_type == "llama"; }
  bool is_known() const { return is_llama() || model_type == "qwen3"; }
  bool has_norms() const { return !is_llama(); }
};

Family family_of(const ConfigPart& config) {
  const std::uint64_t heads = config.number("num_attention_heads").value_or(0);
  const std::uint64_t key_value_heads = config.number("num_key_value_heads").value_or(0);
  return {config.model_type, heads, key_value_heads == 0 ? heads : key_value_heads};
}

std::optional<std::string> name_in_transformers(std::string_view name, const Family& family) {
  if (const auto found = look_up(kAtTop, name)) return std::string(*found);
  const LayerName cut = layer_name(name);
  std::optional<std::string_view> found = look_up(kOfLayer, cut.rest);
  if (!found) found = look_up(kOfProjections, projection_of(cut.rest));
  if (!found && family.has_norms()) found = look_up(kOfQwen3, cut.rest);
  if (!found) return std::nullopt;
  return "model." + std::string(kLayers) + std::string(cut.layer) + "." + std::string(*found);
}

/// Of how many heads the pairs of rows are to be split; absent where rows stay as they are.
std::optional<std::uint64_t> heads_to_split(std::string_view name, const Family& family) {
  if (!family.is_llama()) return std::nullopt;
  const std::string_view projection = projection_of(layer_name(name).rest);
  if (projection == kQuery) return family.heads;
  return projection == kKey ? std::optional(family.key_value_heads) : std::nullopt;
}

/// Pieces that split_pairs_of_rows() makes, at most.
std::uint64_t pieces_after_split(const TensorPlan& tensor, std::uint64_t heads) {
  const std::int64_t head = tensor.shape[0] / static_cast<std::int64_t>(heads);
  std::uint64_t pieces = 0;
  for (const Piece& piece : tensor.pieces) {
    const std::int64_t touched = (piece.size[0] + head - 1) / head + 1;
    pieces += static_cast<std::uint64_t>(std::min(2 * touched, piece.size[0]));
  }
  return pieces;
}

Status check_heads(const TensorPlan& tensor, std::uint64_t heads, const std::string& where) {
  const bool fits = tensor.shape.size() == 2 && tensor.shape[0] > 0 && heads > 0 &&
                    heads <= static_cast<std::uint64_t>(tensor.shape[0] / kLeastHead) &&
                    tensor.shape[0] % static_cast<std::int64_t>(2 * heads) == 0;
  if (fits) return {};
  return make_error(ErrorCode::kCorruption,
                    "tensor " + quote_name(tensor.name) + " has the shape " +
                        shape_text(tensor.shape) + ", which is not " + std::to_string(heads) +
                        " heads of an even size of at least " + std::to_string(kLeastHead) +
                        ", as " + where + " says; is that the model that was trained?");
}

/// The new names in the order of the tensors; absent where one has none, or two the same.
std::optional<std::vector<std::string>> new_names(const Plan& plan, const Family& family) {
  std::vector<std::string> names;
  for (const TensorPlan& tensor : plan.tensors) {
    auto name = name_in_transformers(shared_name(tensor.name), family);
    if (!name) return std::nullopt;
    names.push_back(std::move(*name));
  }
  std::vector<std::string> sorted = names;
  std::sort(sorted.begin(), sorted.end());
  if (std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end()) return std::nullopt;
  return names;
}

}  // namespace

bool has_torchtitan_names(const Plan& plan) {
  bool has_embedding = false;
  bool has_query = false;
  for (const TensorPlan& tensor : plan.tensors) {
    const std::string name = shared_name(tensor.name);
    has_embedding |= name == kAtTop[0].theirs;
    has_query |= projection_of(layer_name(name).rest) == kQuery;
  }
  return has_embedding && has_query;
}

void split_pairs_of_rows(TensorPlan& tensor, std::int64_t heads) {
  const std::int64_t head = tensor.shape[0] / heads;
  const std::int64_t half = head / 2;
  const auto row_bytes =
      static_cast<std::int64_t>(dtype_size(tensor.stored_dtype.value_or(tensor.dtype)));
  std::vector<Piece> pieces;
  for (const Piece& piece : tensor.pieces) {
    const std::int64_t begin = piece.start[0];
    const std::int64_t end = begin + piece.size[0];
    for (std::int64_t first = begin - begin % head; first < end; first += head) {
      for (std::int64_t second = 0; second < 2; ++second) {
        // Pairs of this head whose row of this half lies in the piece.
        const std::int64_t from = std::max<std::int64_t>(0, (begin - first - second + 1) / 2);
        const std::int64_t to = std::min(half, (end - first - second + 1) / 2);
        if (from >= to) continue;
        Piece part = piece;
        part.file_offset += static_cast<std::uint64_t>((first + 2 * from + second - begin) *
                                                       piece.stride_elements[0] * row_bytes);
        part.start[0] = first + second * half + from;
        part.size[0] = to - from;
        // Of a single row a file may state any stride.
        if (to - from > 1) part.stride_elements[0] = 2 * piece.stride_elements[0];
        pieces.push_back(std::move(part));
      }
    }
  }
  tensor.pieces = std::move(pieces);
}

Status take_torchtitan_names(Plan& plan, std::string_view config_text, const std::string& where) {
  if (!has_torchtitan_names(plan)) return {};
  EVALCAR_ASSIGN_OR_RETURN(const ModelConfig config, parse_model_config(config_text, where));
  const Family family = family_of(config.whole);
  if (!family.is_known()) return {};
  auto names = new_names(plan, family);
  if (!names) return {};
  std::uint64_t room = kMostNewPieces;
  for (TensorPlan& tensor : plan.tensors) {
    const auto heads = heads_to_split(shared_name(tensor.name), family);
    if (!heads) continue;
    EVALCAR_RETURN_IF_ERROR(check_heads(tensor, *heads, where));
    const std::uint64_t pieces = pieces_after_split(tensor, *heads);
    const std::uint64_t more = pieces - std::min<std::uint64_t>(pieces, 4 * tensor.pieces.size());
    if (more > room) {
      return make_error(ErrorCode::kCorruption,
                        "tensor " + quote_name(tensor.name) + " " + shape_text(tensor.shape) +
                            ": " + where + " says " + std::to_string(*heads) +
                            " heads, which with those before are more than a model has");
    }
    room -= more;
    split_pairs_of_rows(tensor, static_cast<std::int64_t>(*heads));
  }
  for (std::size_t i = 0; i < names->size(); ++i) plan.tensors[i].name = std::move((*names)[i]);
  std::sort(plan.tensors.begin(), plan.tensors.end(),
            [](const TensorPlan& a, const TensorPlan& b) { return a.name < b.name; });
  return {};
}

}  // namespace evalcar::checkpoint
