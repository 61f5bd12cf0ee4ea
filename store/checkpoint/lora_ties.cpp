#include "store/checkpoint/lora_ties.h"

#include <algorithm>
#include <vector>

#include "store/checkpoint/json_scan.h"
#include "store/checkpoint/numeric.h"

namespace evalcar::checkpoint {
namespace {

class TieFinder final : public JsonVisitor {
 public:
  BaseTies found;

 private:
  std::string scalar(const JsonPath& path, const JsonScalar& value) override {
    const bool here = path.size() == 1 || (path.size() == 2 && path[0] == "text_config");
    if (here && path.back() == "tie_word_embeddings" && value.kind == JsonScalar::Kind::kBool) {
      (value.boolean ? found.tied : found.untied) = true;
    }
    if (path.size() == 2 && path[0] == "architectures" && found.architecture.empty() &&
        value.kind == JsonScalar::Kind::kString) {
      found.architecture = value.text;
    }
    return {};
  }
  std::string open(const JsonPath&, bool) override { return {}; }
  std::string close(const JsonPath&) override { return {}; }
};

/// Absent where it is not known.
std::optional<OutputHead> head_of(const BaseTies& ties, const std::string& embedding) {
  auto head = output_head_of(ties.architecture, embedding);
  if (head && head->weight.empty() && ties.has_head) head.reset();
  return head;
}

constexpr std::uint64_t kComparedAtOnce = std::uint64_t{1} << 20U;

Error differ(const TensorPlan& embedding, const TensorPlan& head) {
  return make_error(ErrorCode::kUnsupported,
                    "changes one of " + quote_name(embedding.name) + " and " +
                        quote_name(head.name) +
                        ", which the base model's configuration ties, but which differ");
}

}  // namespace

Result<BaseTies> read_base_ties(const FileSystem& files, const Folder& base) {
  if (!base.has("config.json")) return BaseTies{};
  const std::string path = join_path(base.path, "config.json");
  EVALCAR_ASSIGN_OR_RETURN(const auto file, open_inside(files, base, "config.json"));
  EVALCAR_ASSIGN_OR_RETURN(const std::string text, read_file(files, path, kMaxConfigBytes));
  TieFinder finder;
  constexpr std::size_t kMaxDepth = 64;
  EVALCAR_RETURN_IF_ERROR(scan_json(text, path, kMaxDepth, finder));
  finder.found.untied &= !finder.found.tied;
  return finder.found;
}

Result<std::optional<TiedWeights>> find_tied_weights(const Plan& base, const BaseTies& ties) {
  std::vector<std::size_t> embeddings;
  std::vector<std::size_t> heads;
  for (std::size_t i = 0; i < base.tensors.size(); ++i) {
    if (is_input_embedding(base.tensors[i].name)) embeddings.push_back(i);
    if (is_output_head(base.tensors[i].name)) heads.push_back(i);
  }
  if (!ties.tied && (ties.untied || !heads.empty())) return std::optional<TiedWeights>();
  if (embeddings.size() != 1 || heads.size() > 1) {
    return make_error(ErrorCode::kUnsupported,
                      "changes an embedding or an output head of a base model with " +
                          std::to_string(embeddings.size()) + " embeddings and " +
                          std::to_string(heads.size()) +
                          " output heads: which of them are tied cannot be told");
  }
  const TensorPlan& embedding = base.tensors[embeddings.front()];
  TiedWeights tied{embeddings.front(), std::nullopt, head_of(ties, embedding.name)};
  if (heads.empty()) return std::optional(tied);
  const TensorPlan& head = base.tensors[heads.front()];
  if (head.shape != embedding.shape || head.dtype != embedding.dtype) {
    return differ(embedding, head);
  }
  tied.head = heads.front();
  return std::optional(tied);
}

Status check_equal(const FileSystem& files, const Plan& plan, std::size_t embedding,
                   std::size_t head) {
  const TensorPlan& one = plan.tensors[embedding];
  const TensorPlan& other = plan.tensors[head];
  EVALCAR_ASSIGN_OR_RETURN(const PlanReader reader, PlanReader::open(files, plan));
  std::vector<std::byte> bytes;
  std::vector<std::byte> others;
  for (const Box& box : row_major_boxes(one, kComparedAtOnce)) {
    bytes.resize(box.elements() * dtype_size(one.dtype));
    others.resize(bytes.size());
    EVALCAR_RETURN_IF_ERROR(reader.read_box(embedding, box, bytes));
    EVALCAR_RETURN_IF_ERROR(reader.read_box(head, box, others));
    if (bytes != others) return differ(one, other);
  }
  return {};
}

std::string untold_ties(const Plan& base, const BaseTies& ties, const std::string& weight,
                        bool is_copy) {
  const bool is_shared = is_shared_embedding(weight);
  if (!is_shared && !is_rare_embedding(weight)) return {};
  const auto has_any = [&](bool (*is_it)(std::string_view)) {
    return std::ranges::any_of(base.tensors,
                               [&](const TensorPlan& tensor) { return is_it(tensor.name); });
  };
  if (is_copy && is_shared) {
    return ", which encoder and decoder share: in PEFT's merged model they keep the old one, and "
           "no file can say that";
  }
  const auto head = head_of(ties, weight);
  const bool headless = head && head->weight.empty();
  if (is_copy && !headless && !ties.untied)
    return ", and it cannot be told what the output head is called that the base model ties to it";
  // What is stored twice would have to be changed twice.
  if ((is_shared && has_any(is_input_embedding)) || (!ties.untied && has_any(is_output_head)))
    return ", and it cannot be told which other tensors of the base model are tied to it";
  return {};
}

}  // namespace evalcar::checkpoint
