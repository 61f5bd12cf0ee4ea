#include "evaluator/metrics/mme.h"

#include <algorithm>
#include <array>
#include <map>

#include "evaluator/metrics/python_text.h"

namespace evalcar::metrics {
namespace {

constexpr std::array<std::string_view, 10> kPerception = {
    "existence", "count", "position", "color",   "posters",
    "celebrity", "scene", "landmark", "artwork", "OCR"};

// str.lower().strip().replace(".", "")
Text plain(std::string_view answer) {
  const Text lowered = lower(decode_utf8(answer));
  return replace_all(Text(strip(lowered)), U".", U"");
}

struct Picture {
  std::string name;
  double right = 0;
  std::size_t answers = 0;
};

struct Category {
  std::string name;
  std::vector<Picture> pictures;  // by first appearance, as Python's dicts keep them
  std::map<std::string, std::size_t> places;
};

std::vector<Category> by_category(std::span<const MmeAnswer> answers) {
  std::vector<Category> categories;
  std::map<std::string, std::size_t> places;
  for (const MmeAnswer& answer : answers) {
    const auto [category_at, new_category] = places.try_emplace(answer.category, categories.size());
    if (new_category) categories.push_back({answer.category, {}, {}});
    Category& category = categories[category_at->second];
    const auto [at, is_new] = category.places.try_emplace(answer.picture, category.pictures.size());
    if (is_new) category.pictures.push_back({answer.picture});
    Picture& picture = category.pictures[at->second];
    picture.right += answer.score;
    ++picture.answers;
  }
  return categories;
}

}  // namespace

std::string mme_label(std::string_view answer) {
  const Text text = plain(answer);
  if (text == U"yes" || text == U"no") return encode_utf8(text);
  if (text.size() == 1) return text == U"y" ? "yes" : text == U"n" ? "no" : "other";
  const TextView first = TextView(text).substr(0, 4);
  if (contains(first, U"yes")) return "yes";
  return contains(first, U"no") ? "no" : "other";
}

std::optional<std::string> mme_gold(std::string_view answer) {
  const Text text = plain(answer);
  if (text != U"yes" && text != U"no") return std::nullopt;
  return encode_utf8(text);
}

bool is_mme_perception(std::string_view category) {
  return std::find(kPerception.begin(), kPerception.end(), category) != kPerception.end();
}

MmeScore mme_score(std::span<const MmeAnswer> answers) {
  MmeScore score;
  double total = 0;
  for (const Category& category : by_category(answers)) {
    double sum = 0;
    std::vector<double>& points = score.points.emplace_back();
    for (const Picture& picture : category.pictures) {
      if (picture.answers != 2) {
        score.missing = "MME scores pairs: question_id " + picture.name + " of category " +
                        category.name + " has " + std::to_string(picture.answers) +
                        " answer(s), expected 2 (limit and offset must not cut a pair; lmms-eval "
                        "fails there)";
        return score;
      }
      const double both = picture.right == 2 ? 100.0 : 0.0;
      points.push_back(both + picture.right / 2 * 100.0);
      sum += points.back();
    }
    total += sum / static_cast<double>(category.pictures.size());
  }
  if (!answers.empty()) score.value = total;
  return score;
}

}  // namespace evalcar::metrics
