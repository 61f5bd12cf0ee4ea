#include "evaluator/tasks/request_definition.h"

#include <array>
#include <utility>

namespace evalcar::tasks {
namespace {

constexpr std::array<std::pair<RequestKind, const char*>, 5> kKinds = {
    {{RequestKind::kGenerate, "generate"},
     {RequestKind::kMultipleChoice, "multiple_choice"},
     {RequestKind::kLoglikelihood, "loglikelihood"},
     {RequestKind::kLoss, "loss"},
     {RequestKind::kRolling, "rolling"}}};
constexpr std::int64_t kMostLength = 1 << 24;

// One text is the name of a column, a list is the choices themselves.
void read_choices(TomlReader& reader, const toml::table& table, RequestDefinition& request) {
  const toml::node* choices = table.get("choices");
  if (choices == nullptr) {
    reader.problem(table.source(),
                   "[request] of multiple_choice lacks \"choices\": the column that holds them, or "
                   "a list of texts");
  } else if (choices->is_string()) {
    request.choices_column = reader.string(table, "choices", "[request]", true);
  } else {
    request.choices = reader.strings(table, "choices", "[request]");
    if (request.choices.size() < 2)
      reader.problem(choices->source(), "\"choices\" in [request] needs at least two texts");
    for (std::size_t i = 0; i < request.choices.size(); ++i) {
      if (request.choices[i].empty())
        reader.problem(choices->source(), "\"choices\" in [request] has an empty text as choice " +
                                              std::to_string(i) +
                                              ": nothing of it could be scored; write what the "
                                              "model would answer, or leave it out");
    }
  }
  request.answer = reader.one_of(table, "answer", "[request]", false, {"index", "letter", "text"});
}

void read_format(TomlReader& reader, const toml::table& table, RequestDefinition& request) {
  const std::string format = reader.one_of(table, "format", "[request]", false, {"chat", "plain"});
  request.plain = format == "plain";
  request.delimiter = table.get("delimiter") == nullptr
                          ? std::string(request.plain ? " " : "")
                          : reader.string(table, "delimiter", "[request]", false);
}

Names keys_of(RequestKind kind) {
  switch (kind) {
    case RequestKind::kMultipleChoice:
      return {"kind", "format", "delimiter", "choices", "answer"};
    case RequestKind::kLoglikelihood:
      return {"kind", "format", "delimiter"};
    case RequestKind::kLoss:
      return {"kind", "messages", "answers", "max_length"};
    case RequestKind::kRolling:
      return {"kind", "max_length"};
    case RequestKind::kGenerate:
      break;
  }
  return {"kind"};
}

}  // namespace

std::string_view kind_name(RequestKind kind) {
  for (const auto& [known, name] : kKinds) {
    if (known == kind) return name;
  }
  return "generate";
}

void read_request(TomlReader& reader, const toml::table& root, Definition& out) {
  const toml::table* table = reader.table(root, "request", "the file", false);
  if (table == nullptr) return;
  RequestDefinition& request = out.file.request;
  Names names;
  for (const auto& known : kKinds) names.emplace_back(known.second);
  const std::string kind = reader.one_of(*table, "kind", "[request]", true, names);
  if (kind.empty()) return;
  for (const auto& [known, name] : kKinds) {
    if (kind == name) request.kind = known;
  }
  reader.only(*table, "[request] of " + kind, keys_of(request.kind));
  if (request.kind == RequestKind::kMultipleChoice) read_choices(reader, *table, request);
  if (request.kind == RequestKind::kMultipleChoice || request.kind == RequestKind::kLoglikelihood)
    read_format(reader, *table, request);
  if (request.kind == RequestKind::kLoss) {
    request.messages_column = reader.string(*table, "messages", "[request]", false);
    if (request.messages_column.empty()) request.messages_column = "messages";
    request.last_answer_only =
        reader.one_of(*table, "answers", "[request]", false, {"all", "last"}) == "last";
  }
  if (request.kind == RequestKind::kLoss || request.kind == RequestKind::kRolling)
    request.max_length = reader.integer(*table, "max_length", "[request]", 2, kMostLength);
}

void check_reads_text(TomlReader& reader, const toml::table& root, const Definition& out) {
  const RequestDefinition& request = out.file.request;
  const bool rolling = request.kind == RequestKind::kRolling;
  if (!rolling && !request.plain) return;
  const std::string reads = rolling ? "a request of kind \"rolling\" reads a text as it stands"
                                    : "[request] format = \"plain\" reads the prompt as it stands";
  if (!out.image_columns.empty())
    reader.problem(root["columns"]["images"].node()->source(),
                   "\"images\" in [columns] is " + quoted(list_of(out.image_columns)) + ", and " +
                       reads + ", without pictures; expected no images" +
                       (rolling ? "" : ", or format = \"chat\", which shows them"));
  const std::string& builder = out.prompt.builder;
  if (builder == "mmmu" || (rolling && !builder.empty()))
    reader.problem(root["prompt"]["builder"].node()->source(),
                   "\"builder\" in [prompt] is " + quoted(builder) + ", and " + reads +
                       (builder == "mmmu" ? ", without the pictures that this builder shows"
                                          : ", where this builder asks a question") +
                       "; expected \"text\" (a template)" +
                       (rolling ? "" : ", or format = \"chat\""));
}

std::vector<KnownMetric> metrics_of(RequestKind kind) {
  switch (kind) {
    case RequestKind::kMultipleChoice:
      return {{"acc", "mean", true}, {"acc_norm", "mean", true}, {"exact_match", "mean", true}};
    case RequestKind::kLoglikelihood:
      return {{"acc", "mean", true}, {"perplexity", "perplexity", false}};
    case RequestKind::kLoss:
      return {{"loss", "token_mean", false}, {"perplexity", "token_perplexity", false}};
    case RequestKind::kRolling:
      return {{"word_perplexity", "weighted_perplexity", false},
              {"byte_perplexity", "weighted_perplexity", false},
              {"bits_per_byte", "bits_per_byte", false}};
    case RequestKind::kGenerate:
      break;
  }
  return {};
}

}  // namespace evalcar::tasks
