#include "evaluator/tasks/definition.h"

#include <algorithm>

#include "evaluator/metrics/python_text.h"
#include "evaluator/metrics/text_scorers.h"
#include "evaluator/tasks/request_definition.h"
#include "evaluator/tasks/scorer_definition.h"
#include "evaluator/tasks/toml_reader.h"
#include "store/base/text.h"

namespace evalcar::tasks {
namespace {

const Names kBuilders = {"mme", "mmmu"};
const Names kSamplers = {"default", "first_n"};

void read_data(TomlReader& reader, const toml::table& root, Definition& out) {
  const toml::table* data = reader.table(root, "data", "the file", true);
  if (data == nullptr) return;
  reader.only(*data, "[data]", {"set", "config", "split", "files"});
  out.file.data_set = reader.string(*data, "set", "[data]", false);
  out.file.config = reader.string(*data, "config", "[data]", false);
  out.data_files = reader.strings(*data, "files", "[data]");
  if (out.data_files.empty()) {
    if (out.file.data_set.empty()) {
      reader.problem(
          data->source(),
          "[data] lacks \"set\" (\"organisation/name\") or \"files\" (Parquet or JSONL files)");
    }
    out.file.split = reader.string(*data, "split", "[data]", true);
  } else {
    out.file.split = reader.string(*data, "split", "[data]", false);
    if (!out.file.data_set.empty())
      reader.problem(data->source(), "[data] has both \"set\" and \"files\": keep one");
  }
  for (const std::string& part : {out.file.data_set, out.file.config, out.file.split}) {
    if (part.find("..") != std::string::npos || (!part.empty() && part.front() == '/')) {
      reader.problem(data->source(),
                     quoted(part) + " in [data] must be a plain name inside the data folder");
    }
  }
}

void read_columns(TomlReader& reader, const toml::table& root, Definition& out) {
  const bool needs_target =
      out.file.request.kind != RequestKind::kLoss && out.file.request.kind != RequestKind::kRolling;
  const toml::table* columns = reader.table(root, "columns", "the file", needs_target);
  if (columns == nullptr) return;
  reader.only(*columns, "[columns]", {"images", "target", "target_text", "cluster"});
  out.image_columns = reader.strings(*columns, "images", "[columns]");
  out.target_column = reader.string(*columns, "target", "[columns]", false);
  if (columns->get("target_text") != nullptr)
    out.target_text = reader.string(*columns, "target_text", "[columns]", false);
  out.cluster_column = reader.string(*columns, "cluster", "[columns]", false);
  if (!needs_target) {
    if (columns->get("target") != nullptr || columns->get("target_text") != nullptr)
      reader.problem(columns->source(), "[columns] has a target, and a request of kind " +
                                            quoted(kind_name(out.file.request.kind)) +
                                            " compares with none");
    return;
  }
  if (out.target_column.empty() == !out.target_text.has_value()) {
    reader.problem(
        columns->source(),
        "[columns] needs one of \"target\" (a column) and \"target_text\" (a fixed text)");
  }
}

// Braces: {name}, {name|filter}; {{ and }} are braces themselves. `what`: the key that holds it.
void check_template(TomlReader& reader, const toml::source_region& at, const std::string& what,
                    const std::string& text) {
  static const Names kFilters = {"capitalize", "join", "letters", "lower", "strip", "upper"};
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if ((c == '{' || c == '}') && i + 1 < text.size() && text[i + 1] == c) {
      ++i;
    } else if (c == '}') {
      reader.problem(at, what + " has a lone } (write }} for a brace)");
      return;
    } else if (c == '{') {
      const std::size_t end = text.find('}', i);
      if (end == std::string::npos || end == i + 1) {
        reader.problem(at, what + " has a { without a column name and a } (write {{ for a brace)");
        return;
      }
      const std::string name = text.substr(i + 1, end - i - 1);
      if (const std::size_t bar = name.find('|'); bar != std::string::npos) {
        const std::string filter = name.substr(bar + 1);
        if (std::find(kFilters.begin(), kFilters.end(), filter) == kFilters.end()) {
          const std::string near = nearest_word(filter, kFilters);
          reader.problem(at, what + " has the unknown filter " + quoted(filter) + "; known are " +
                                 list_of(kFilters) +
                                 (near.empty() ? "" : "; did you mean " + quoted(near) + "?"));
        }
      }
      i = end;
    }
  }
}

void check_choices(TomlReader& reader, const toml::table& root, const Definition& out) {
  const Names& choices = out.file.request.choices;
  for (std::size_t i = 0; i < choices.size(); ++i)
    check_template(reader, root["request"]["choices"].node()->source(),
                   "\"choices\" in [request], choice " + std::to_string(i) + ",", choices[i]);
}

// The template that uses the name; "" if none does.
std::string used_by(const Definition& definition, const std::string& name) {
  const auto uses = [&](const std::string& text) {
    return text.find("{" + name + "}") != std::string::npos ||
           text.find("{" + name + "|") != std::string::npos;
  };
  if (uses(definition.prompt.text)) return "the prompt's text";
  return std::ranges::any_of(definition.file.request.choices, uses) ? "[request] choices" : "";
}

// What the builder reads of this variant. prompt_type stands in lmms-eval's mmmu, and nothing reads
// it there either.
Names settings_of_builder(const std::string& builder, const Settings& variant) {
  if (builder == "mme") return {"pre_prompt", "post_prompt"};
  const auto is_qwen3_vl = [](const auto& setting) {
    return setting.first == "format" && setting.second == Setting(std::string("qwen3_vl"));
  };
  if (std::ranges::any_of(variant, is_qwen3_vl))
    return {"format", "pre_prompt", "post_prompt", "open_ended_prompt"};
  return {"format", "prompt_type", "multiple_choice_prompt", "open_ended_prompt"};
}

// A setting that changes nothing would be taken for one that does.
void check_is_read(TomlReader& reader, const toml::table& table, const std::string& where,
                   const Settings& variant, const Definition& definition) {
  if (const std::string& builder = definition.prompt.builder; !builder.empty()) {
    reader.only(table, where + " of builder " + builder, settings_of_builder(builder, variant));
    return;
  }
  for (const auto& [name, setting] : variant) {
    // lmms-eval's textvqa has it, switched off.
    const bool is_off = name == "ocr" && setting == Setting(false);
    if (is_off || !used_by(definition, name).empty()) continue;
    reader.problem(table.get(name)->source(),
                   quoted(name) + " in " + where +
                       " is read by nothing: the prompt's text has no {" + name + "}" +
                       (name == "ocr" ? R"(; what lmms-eval adds for it is, in the text, )"
                                        R"("\nReference OCR token: {ocr_tokens|join}")"
                                      : ""));
  }
}

// A name of a template that one variant sets must be set by all: elsewhere it would silently be a
// column.
void check_variants(TomlReader& reader, const toml::table& at, const Definition& definition) {
  const PromptDefinition& prompt = definition.prompt;
  for (const auto& [family, settings] : prompt.variants) {
    check_is_read(reader, *at.get(family)->as_table(), "[prompt.variants." + family + "]", settings,
                  definition);
    for (const auto& setting : settings) {
      const std::string& name = setting.first;
      const std::string user = used_by(definition, name);
      if (user.empty()) continue;
      for (const auto& [other, others] : prompt.variants) {
        const bool has = std::any_of(others.begin(), others.end(),
                                     [&](const auto& s) { return s.first == name; });
        if (!has) {
          reader.problem(at.source(), "[prompt.variants." + other + "] lacks " + quoted(name) +
                                          ", which " + user + " uses and [prompt.variants." +
                                          family + "] sets");
        }
      }
    }
  }
}

void read_prompt(TomlReader& reader, const toml::table& root, Definition& out) {
  const RequestKind kind = out.file.request.kind;
  const toml::table* prompt = reader.table(root, "prompt", "the file", kind != RequestKind::kLoss);
  if (prompt == nullptr) return;
  if (kind == RequestKind::kLoss) {
    reader.problem(prompt->source(),
                   "[prompt]: a request of kind \"loss\" has its conversation in a column "
                   "([request] messages), and no prompt");
    return;
  }
  reader.only(*prompt, "[prompt]", {"text", "builder", "variants"});
  out.prompt.text = reader.string(*prompt, "text", "[prompt]", false);
  out.prompt.builder = reader.one_of(*prompt, "builder", "[prompt]", false, kBuilders);
  if ((prompt->get("text") != nullptr) == (prompt->get("builder") != nullptr)) {
    reader.problem(
        prompt->source(),
        "[prompt] needs one of \"text\" (a template) and \"builder\" (" + list_of(kBuilders) + ")");
  }
  check_reads_text(reader, root, out);
  if (const toml::node* text = prompt->get("text"))
    check_template(reader, text->source(), "\"text\" in [prompt]", out.prompt.text);
  const toml::table* variants = reader.table(*prompt, "variants", "[prompt]", false);
  if (variants == nullptr) return;
  for (const auto& [key, node] : *variants) {
    const std::string name(key.str());
    const std::string where = "[prompt.variants." + name + "]";
    if (const auto* table = node.as_table()) {
      out.prompt.variants.emplace_back(name, reader.settings(*table, where, {}));
    } else {
      reader.wrong_type(node, name, "[prompt.variants]", "a table");
    }
  }
  if (variants->get("default") == nullptr)
    reader.problem(variants->source(), "[prompt.variants] lacks [prompt.variants.default]");
  check_variants(reader, *variants, out);
  // "default" first, then by name: the order in which lmms-eval's files have them.
  std::stable_sort(
      out.prompt.variants.begin(), out.prompt.variants.end(),
      [](const auto& a, const auto& b) { return a.first == "default" && b.first != "default"; });
}

// Without pictures: lmms-eval's chat wrappers leave the examples of a task with pictures out of its
// prompts and call the result by their number all the same.
void check_fewshot(TomlReader& reader, const toml::table& table, const FewShotDefinition& fewshot,
                   const Definition& out) {
  if (fewshot.num == 0) return;
  const bool of_files = !out.data_files.empty();
  if (fewshot.split.empty() == fewshot.files.empty()) {
    reader.problem(table.source(),
                   "[fewshot] needs one of \"split\" (of the set) and \"files\" (beside this one)");
  } else if (of_files && !fewshot.split.empty()) {
    reader.problem(table.source(),
                   "[data] has no set, so [fewshot] needs \"files\", not \"split\"");
  }
  if (fewshot.split.find("..") != std::string::npos || fewshot.split.starts_with("/")) {
    reader.problem(table.source(), quoted(fewshot.split) +
                                       " in [fewshot] must be a plain name inside the data folder");
  }
  const RequestKind kind = out.file.request.kind;
  if (kind == RequestKind::kLoss || kind == RequestKind::kRolling) {
    reader.problem(table.source(), "[fewshot] goes with questions, and a request of kind " +
                                       quoted(kind_name(kind)) +
                                       " has none; num = 0 says that there are never any examples");
  }
  const bool shown_by_builder = out.prompt.builder == "mmmu";
  if (!out.image_columns.empty() || shown_by_builder) {
    reader.problem(
        table.source(),
        std::string("[fewshot] goes with a task without pictures: lmms-eval's chat "
                    "wrappers leave the examples out where ") +
            (shown_by_builder ? "the prompt builder \"mmmu\" shows them" : "[columns] has images") +
            ", and so would the score be one without examples under their number; "
            "num = 0 says that there are never any");
  }
}

void read_fewshot(TomlReader& reader, const toml::table& root, Definition& out) {
  const toml::table* table = reader.table(root, "fewshot", "the file", false);
  if (table == nullptr) return;
  reader.only(*table, "[fewshot]",
              {"num", "split", "files", "sampler", "delimiter", "target_delimiter"});
  FewShotDefinition& fewshot = out.fewshot.emplace();
  fewshot.num = reader.integer(*table, "num", "[fewshot]", 0, 1000);
  out.file.shots = fewshot.num.value_or(0);
  fewshot.split = reader.string(*table, "split", "[fewshot]", false);
  fewshot.files = reader.strings(*table, "files", "[fewshot]");
  const std::string sampler = reader.one_of(*table, "sampler", "[fewshot]", false, kSamplers);
  if (!sampler.empty()) fewshot.sampler = sampler;
  if (table->get("delimiter") != nullptr) {
    fewshot.delimiter = reader.string(*table, "delimiter", "[fewshot]", false);
    if (out.file.generation.until.empty()) out.file.generation.default_until = fewshot.delimiter;
  }
  // Where a choice stands behind the question as it is, it stands so behind those of the examples.
  if (out.file.request.plain) fewshot.target_delimiter = out.file.request.delimiter;
  if (table->get("target_delimiter") != nullptr)
    fewshot.target_delimiter = reader.string(*table, "target_delimiter", "[fewshot]", false);
  check_fewshot(reader, *table, fewshot, out);
}

void read_generation(TomlReader& reader, const toml::table& root, Definition& out) {
  const toml::table* generation = reader.table(root, "generation", "the file", false);
  if (generation == nullptr) return;
  if (out.file.request.kind != RequestKind::kGenerate)
    reader.problem(generation->source(), "[generation]: a request of kind " +
                                             quoted(kind_name(out.file.request.kind)) +
                                             " scores given tokens, and nothing of the table would "
                                             "do anything; expected no such table: leave it out, "
                                             "or take kind = \"generate\"");
  reader.only(
      *generation, "[generation]",
      {"max_new_tokens", "until", "temperature", "top_p", "top_k", "num_beams", "do_sample"});
  GenerationDefaults& defaults = out.file.generation;
  defaults.max_new_tokens =
      reader.integer(*generation, "max_new_tokens", "[generation]", 1, 1'000'000);
  defaults.until = reader.strings(*generation, "until", "[generation]");
  defaults.temperature = reader.number(*generation, "temperature", "[generation]", 0, 100);
  defaults.top_p = reader.number(*generation, "top_p", "[generation]", 0, 1);
  defaults.top_k = reader.integer(*generation, "top_k", "[generation]", 1, 1'000'000);
  defaults.num_beams = reader.integer(*generation, "num_beams", "[generation]", 1, 1);
  defaults.do_sample = reader.boolean(*generation, "do_sample", "[generation]").value_or(false);
}

void read_aliases(TomlReader& reader, const toml::table& root, Definition& out) {
  const toml::table* aliases = reader.table(root, "aliases", "the file", false);
  if (aliases == nullptr) return;
  Names known;
  for (const MetricDefinition& metric : out.metrics) known.push_back(metric.name);
  for (const auto& [key, node] : *aliases) {
    const std::string name(key.str());
    const std::string metric = reader.one_of(*aliases, name, "[aliases]", true, known);
    if (!metric.empty()) out.file.aliases.emplace(name, metric);
  }
}

void read_head(TomlReader& reader, const toml::table& root, Definition& out) {
  reader.only(root, "the file",
              {"task", "version", "groups", "data", "columns", "request", "prompt", "fewshot",
               "generation", "scorer", "metrics", "aliases"});
  out.file.name = reader.string(root, "task", "the file", true);
  const bool plain = std::all_of(out.file.name.begin(), out.file.name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-' || c == '.';
  });
  if (!plain || (!out.file.name.empty() && out.file.name.front() == '.')) {
    reader.problem(
        root.get("task")->source(),
        "\"task\" is " + quoted(out.file.name) +
            "; a name is made of letters, digits, _, - and . (it becomes part of file names)");
  }
  out.file.version = reader.string(root, "version", "the file", false);
  if (out.file.version.empty()) out.file.version = "Yaml";
  out.groups = reader.strings(root, "groups", "the file");
}

}  // namespace

std::string nearest_word(std::string_view word, const std::vector<std::string>& known) {
  std::string best;
  std::size_t best_distance = std::max<std::size_t>(2, word.size() / 3) + 1;
  for (const std::string& candidate : known) {
    const std::size_t distance =
        metrics::levenshtein(metrics::decode_utf8(word), metrics::decode_utf8(candidate));
    if (distance < best_distance) {
      best_distance = distance;
      best = candidate;
    }
  }
  return best;
}

Definition parse_definition(std::string_view content, const std::string& source,
                            Problems& problems) {
  Definition out;
  out.file.source = source;
  out.file.content = std::string(content);
  try {
    const toml::table root = toml::parse(content, std::string_view(source));
    TomlReader reader(source, problems);
    read_head(reader, root, out);
    read_data(reader, root, out);
    read_request(reader, root, out);
    check_choices(reader, root, out);
    read_columns(reader, root, out);
    read_prompt(reader, root, out);
    read_fewshot(reader, root, out);
    read_generation(reader, root, out);
    read_scorer(reader, root, out);
    read_metrics(reader, root, out);
    read_aliases(reader, root, out);
  } catch (const toml::parse_error& e) {
    problems.push_back(source + ":" + std::to_string(e.source().begin.line) +
                       ": not TOML: " + std::string(e.description()));
  } catch (const std::exception& e) {
    problems.push_back(source + ": cannot be read: " + e.what());
  }
  return out;
}

Result<Definition> definition_of(const TaskFile& file) {
  Problems problems;
  Definition definition = parse_definition(file.content, file.source, problems);
  if (problems.empty()) return definition;
  Error all = make_error(ErrorCode::kInvalidArgument, problems.front());
  for (std::size_t i = 1; i < problems.size(); ++i) all = with_lines(std::move(all), problems[i]);
  return all;
}

}  // namespace evalcar::tasks
