// What a command asks of the agent that holds the database, and what it answers.
//
// One connection does all writes, and a running agent has it. So a command that wants to change
// something writes a small file into a folder beside the database, and the agent does it:
//
//   <database>.requests/<id>.request    written by the command (outbox), published by rename
//                       <id>.taken      the agent's (inbox), from here on it will be done
//                       <id>.answer     the agent's; the command reads and removes it
//                       <name>.rejected set aside: not understood
//
// Taking and withdrawing are renames and removals of the same name, so that exactly one of them
// wins. A request that was taken by an agent that was killed is done by the next one: whatever is
// asked for must be harmless when it is done twice. Who may write into the folder may ask.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "store/base/result.h"

namespace evalcar::request {

/// Another chance for the evaluations of a step that failed.
struct Retry {
  std::int64_t step = 0;
};
/// What the policy or a cadence passed over is measured after all.
struct Backfill {};
/// An evaluation that has not been measured is not to be.
struct Cancel {
  std::int64_t evaluation = 0;  ///< its number
};
/// The weights of a step stay, whatever retention does.
struct Pin {
  std::int64_t step = 0;
  bool off = false;  ///< no longer
};
/// Results files and samples of old steps are to go (publish/prune.h); at least one rule is given.
struct Prune {
  std::optional<std::int64_t> keep;
  std::optional<std::chrono::seconds> older_than;
  bool dry_run = false;
};
using Request = std::variant<Retry, Backfill, Cancel, Pin, Prune>;

enum class Outcome {
  kDone,
  kNothing,  ///< there was nothing to do
  kFailed,
};

struct Answer {
  Outcome outcome = Outcome::kDone;
  std::string text;   ///< for people
  bool more = false;  ///< asking again does the next part
};

/// The folder of a database.
std::string folder_of(const std::string& database);
inline constexpr std::string_view kRequestEnding = ".request";
inline constexpr std::string_view kTakenEnding = ".taken";
inline constexpr std::string_view kAnswerEnding = ".answer";
inline constexpr std::string_view kRejectedEnding = ".rejected";
/// Of a request or an answer.
inline constexpr std::uint64_t kMaxBytes = std::uint64_t{64} << 10U;

/// One JSON object: {"version":1,"request":"retry","step":500}.
std::string encode(const Request& request);
std::string encode(const Answer& answer);
/// kInvalidArgument: not such an object, or a request of another version; says why.
Result<Request> decode_request(std::string_view text);
Result<Answer> decode_answer(std::string_view text);

}  // namespace evalcar::request
