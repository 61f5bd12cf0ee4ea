// The chat templates' limits and refusals. What they render is compared with Jinja2 in
// tests/parity/text.
#include "evaluator/text/chat_template.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <string>
#include <vector>

#include "evaluator/text/answer_spans.h"

using Catch::Matchers::ContainsSubstring;
using evalcar::Error;
using evalcar::ErrorCode;
using evalcar::text::ChatTemplate;
using evalcar::text::Content;
using evalcar::text::ContentForm;
using evalcar::text::Message;
using evalcar::text::render_with_answers;

namespace {

evalcar::Result<std::string> render(const std::string& source,
                                    const std::string& variables = "{}") {
  auto parsed = ChatTemplate::parse(source, "t.jinja");
  if (!parsed) return std::move(parsed).error();
  return parsed->render_json(variables);
}

Error error_of(const std::string& source) {
  const auto text = render(source);
  INFO(source.substr(0, 200));
  REQUIRE_FALSE(text.has_value());
  return text.error();
}

std::string repeated(const std::string& text, int count) {
  std::string out;
  for (int i = 0; i < count; ++i) out += text;
  return out;
}

}  // namespace

TEST_CASE("messages with text and pictures are rendered") {
  const auto chat = ChatTemplate::parse(
      "{% for m in messages %}{{ m.role }}:{% for c in m.content %}"
      "{{ '[I]' if c.type == 'image' else c.text }}{% endfor %};{% endfor %}"
      "{% if add_generation_prompt %}>{% endif %}",
      "t");
  REQUIRE(chat.has_value());

  const auto text = chat->render({{"user",
                                   {{Content::Type::kImage, ""},
                                    {Content::Type::kText,
                                     "a\xFF"
                                     "b"}}}},
                                 true);

  REQUIRE(text.has_value());
  CHECK(*text ==
        "user:[I]a\xEF\xBF\xBD"
        "b;>");
}

TEST_CASE("unknown constructs are named with their line") {
  const Error filter = error_of("a\n\n{{ x | base64 }}");
  CHECK(filter.code == ErrorCode::kUnsupported);
  CHECK_THAT(filter.message, ContainsSubstring("t.jinja: line 3") && ContainsSubstring("'base64'"));
  CHECK_THAT(error_of("{% include 'x' %}").message, ContainsSubstring("'include'"));
  CHECK_THAT(error_of("\n{% for a in b recursive %}{% endfor %}").message,
             ContainsSubstring("line 2") && ContainsSubstring("recursive"));
  CHECK_THAT(error_of("{{ x is escaped }}").message, ContainsSubstring("'escaped'"));
}

TEST_CASE("a template that refuses its messages is quoted in its own words") {
  const Error error = error_of("\n{{ raise_exception('Roles must alternate') }}");

  CHECK(error.code == ErrorCode::kUnsupported);
  CHECK_THAT(error.message,
             ContainsSubstring("Roles must alternate") && ContainsSubstring("line 2"));
}

TEST_CASE("templates that would never end or fill the memory are stopped") {
  for (const std::string source : {
           "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}",
           "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
           "{% macro m() %}{{ m() }}{{ m() }}{% endmacro %}{{ m() }}",
           "{{ 'a' * 9000000000 }}",
           "{{ [1] * 9000000000 }}",
           "{{ 'a'.ljust(9000000000) }}",
           "{% set n = namespace(s='x') %}{% for i in range(99) %}{% set n.s = n.s ~ n.s %}{% "
           "endfor %}",
           "{% set n = namespace(s=[1]) %}{% for i in range(99) %}{% set n.s = n.s + n.s %}{% "
           "endfor %}",
           "{% set n = namespace(s=[]) %}{% for i in range(99999) %}{% set n.s = [n.s, n.s] %}{% "
           "endfor %}",
           "{% set n = namespace(s=1) %}{% for i in range(60) %}{% set n.s = [n.s, n.s] %}{% "
           "endfor %}{{ n.s }}",
           "{% set n = namespace(s=1) %}{% for i in range(60) %}{% set n.s = {'a': n.s, 'b': n.s} "
           "%}{% endfor %}{{ n.s|tojson }}",
           "{% set n = namespace(s=1) %}{% for i in range(60) %}{% set n.s = [n.s, n.s] %}{% "
           "endfor %}"
           "{% set o = namespace(s=1) %}{% for i in range(60) %}{% set o.s = [o.s, o.s] %}{% "
           "endfor %}{{ n.s == o.s }}",
           "{% set n = namespace(s='ab' * 1000) %}{% for i in range(9) %}{% set n.s = "
           "n.s.replace('', n.s) %}{% endfor %}",
           "{{ '%999999999d' | format(1) * 99999999 }}",
           "{{ 9223372036854775807 + 1 }}",
           "{{ 10 ** 400 }}",
           "{{ range(0, 9000000000) | length }}",
       }) {
    const Error error = error_of(source);
    CHECK(error.code == ErrorCode::kUnsupported);
    CHECK_THAT(error.message, ContainsSubstring("line 1"));
  }
}

TEST_CASE("deeply nested source is refused and not recursed into") {
  const int deep = 20'000;
  for (const std::string& source : {
           "{{ " + repeated("(", deep) + "1" + repeated(")", deep) + " }}",
           "{{ " + repeated("[", deep) + " }}",
           "{{ " + repeated("{1:", deep) + " }}",
           "{{ " + repeated("-", deep) + "1 }}",
           "{{ " + repeated("not ", deep) + "1 }}",
           "{{ 1" + repeated(" if 1 else 1", deep) + " }}",
           "{{ 1" + repeated("+1", deep) + " }}",
           "{{ a" + repeated(".a", deep) + " }}",
           "{{ a" + repeated("()", deep) + " }}",
           "{{ a" + repeated("|abs", deep) + " }}",
           "{{ a" + repeated(" or a", deep) + " }}",
           "{{ a" + repeated(" is odd", deep) + " }}",
           repeated("{% if 1 %}", deep) + repeated("{% endif %}", deep),
           repeated("{% for a in b %}", deep),
           "{% set " + repeated("(", deep) + "a" + repeated(")", deep) + " = 1 %}",
       }) {
    CHECK(error_of(source).code != ErrorCode::kInternal);
  }
  CHECK_FALSE(
      render("{{ x }}", R"({"x":)" + repeated("[", 5000) + repeated("]", 5000) + "}").has_value());
}

TEST_CASE("a text model's template gets the content as one text, and no picture") {
  const auto chat = ChatTemplate::parse("{{ 'user:' + messages[0].content }}", "t");
  REQUIRE(chat.has_value());
  const Content first{Content::Type::kText, "a"}, second{Content::Type::kText, "b"};

  const auto text = chat->render({{"user", {first, second}}}, true, ContentForm::kText);
  const auto picture =
      chat->render({{"user", {{Content::Type::kImage, ""}, first}}}, true, ContentForm::kText);
  const auto parts = chat->render({{"user", {first}}}, true);

  REQUIRE(text.has_value());
  CHECK(*text == "user:a\nb");
  REQUIRE_FALSE(picture.has_value());
  CHECK(picture.error().message.find("picture") != std::string::npos);
  CHECK_FALSE(parts.has_value());  // a list is no text
}

TEST_CASE("every truncation of a template is rendered or refused, and none crashes") {
  const std::string source =
      "{%- set ns = namespace(a=[1, 'x\\n', {'k': 2.5}]) -%}{# c #}{% for i in ns.a if i is not "
      "none %}"
      "{{ loop.index ~ (i|tojson)[::-1] }}{% else %}{% raw %}{{ r }}{% endraw %}{% endfor %}"
      "{% macro m(a, b=2) %}{{ a if a else b }}{% endmacro %}{% call m(1) %}{% endcall %}{{ "
      "m('z').upper() }}";
  REQUIRE(render(source).has_value());
  for (std::size_t size = 0; size < source.size(); ++size) {
    const auto text = render(source.substr(0, size));
    if (!text) CHECK_THAT(text.error().message, ContainsSubstring("line "));
  }
}

TEST_CASE("namespaces that hold themselves, loops and macros are let go of") {
  // Under the address sanitizer a cycle that survives is a leak.
  const auto text = render(
      "{% set n = namespace() %}{% set n.self = [n] %}"
      "{% for i in [1, 2] %}{% set n.loop = loop %}{% set x = loop.changed(loop) %}"
      "{% macro m() %}{{ i }}{% endmacro %}{% set n.m = m %}{% endfor %}"
      "{{ n.m() }}{{ n.loop.index }}{% set c = cycler(n) %}{% set n.c = c %}{{ c.next() is defined "
      "}}");

  REQUIRE(text.has_value());
  CHECK(*text == "22True");
}

TEST_CASE("a source that is too long or no text is refused") {
  CHECK_THAT(error_of(std::string(2 << 20, 'a')).message, ContainsSubstring("2097152"));
  CHECK_THAT(error_of("\xFF").message, ContainsSubstring("UTF-8"));
}

TEST_CASE("variables must be one JSON object") {
  CHECK_FALSE(render("x", "[1]").has_value());
  CHECK_FALSE(render("x", "{").has_value());
  CHECK(render("{{ a }}{{ tools }}", R"({"a": 1})").value() == "1None");
}

namespace {

constexpr const char* kChat =
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}|{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}";

std::vector<Message> two_turns() {
  const auto say = [](const char* role, const char* text) {
    return Message{role, {{Content::Type::kText, text}}};
  };
  return {say("user", "q"), say("assistant", "one"), say("user", "r"), say("assistant", "two")};
}

std::vector<std::string> answers_in(const ChatTemplate::Marked& marked) {
  std::vector<std::string> found;
  for (const auto& [begin, end] : marked.answers)
    found.push_back(marked.text.substr(begin, end - begin));
  return found;
}

}  // namespace

TEST_CASE("an answer is what the template adds behind its generation prompt") {
  const auto parsed = ChatTemplate::parse(kChat, "t");

  const auto all = render_with_answers(*parsed, two_turns(), ContentForm::kText, false);
  const auto last = render_with_answers(*parsed, two_turns(), ContentForm::kText, true);

  CHECK(answers_in(all.value()) == std::vector<std::string>{"one|", "two|"});
  CHECK(answers_in(last.value()) == std::vector<std::string>{"two|"});
}

TEST_CASE("generation blocks say what an answer is") {
  const auto parsed = ChatTemplate::parse(
      "{% for m in messages %}{% if m.role == 'assistant' %}A:{%- generation %}{{ m.content }}"
      "{%- endgeneration %};{% else %}U;{% endif %}{% endfor %}",
      "t");
  REQUIRE(parsed->marks_answers());
  CHECK_FALSE(parsed->tells_time());
  CHECK(ChatTemplate::parse("{{ strftime_now('%d %b') }}", "t")->tells_time());
  CHECK_FALSE(ChatTemplate::parse(kChat, "t")->marks_answers());

  const auto all = render_with_answers(*parsed, two_turns(), ContentForm::kText, false);

  CHECK(all->text == "U;A:one;U;A:two;");
  CHECK(answers_in(*all) == std::vector<std::string>{"one", "two"});
}

TEST_CASE("a template that renders earlier answers otherwise is refused, but for its last answer") {
  const auto parsed = ChatTemplate::parse(
      "{% for m in messages %}{{ m.role }}:{{ m.content if loop.last or m.role == 'user' else '-' "
      "}};"
      "{% endfor %}{% if add_generation_prompt %}assistant:{% endif %}",
      "t");

  const auto all = render_with_answers(*parsed, two_turns(), ContentForm::kText, false);
  const auto last = render_with_answers(*parsed, two_turns(), ContentForm::kText, true);

  REQUIRE_FALSE(all.has_value());
  CHECK_THAT(all.error().message, ContainsSubstring("message 1: the chat template renders it"));
  CHECK(answers_in(last.value()) == std::vector<std::string>{"two;"});
}

TEST_CASE("a generation block inside a macro is refused where its place is asked for") {
  const auto parsed = ChatTemplate::parse(
      "{% macro say(x) %}{% generation %}{{ x }}{% endgeneration %}{% endmacro %}"
      "{% for m in messages %}{{ say(m.content) }}{% endfor %}",
      "t");

  CHECK(parsed->render(two_turns(), false, ContentForm::kText).value() == "qonertwo");
  const auto marked = parsed->render_marked(two_turns(), ContentForm::kText);
  REQUIRE_FALSE(marked.has_value());
  CHECK_THAT(marked.error().message, ContainsSubstring("inside a macro"));
}
