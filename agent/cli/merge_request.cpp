// The child that the HTTP API merges with: nothing of a request stands on a command line.
#include <unistd.h>

#include <array>
#include <nlohmann/json.hpp>
#include <sstream>

#include "agent/cli/exit_code.h"
#include "agent/cli/merge_command.h"
#include "agent/cli/small_commands.h"

namespace evalcar::cli {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr int kChannel = 3;
constexpr std::size_t kMostRequest = std::size_t{64} * 1024;

std::string read_line() {
  std::string line;
  std::array<char, 4096> piece{};
  while (line.size() < kMostRequest && !line.ends_with('\n')) {
    const ssize_t n = ::read(kChannel, piece.data(), piece.size());
    if (n <= 0) break;
    line.append(piece.data(), static_cast<std::size_t>(n));
  }
  return line;
}

void answer(const OrderedJson& json) {
  const std::string line = json.dump(-1, ' ', false, OrderedJson::error_handler_t::replace) + "\n";
  (void)!::write(kChannel, line.data(), line.size());
}

}  // namespace

int run_merge_request(FileSystem& files) {
  const OrderedJson request = OrderedJson::parse(read_line(), nullptr, false);
  for (const char* const key : {"checkpoint", "output_dir", "kind"}) {
    if (!request.is_object() || !request.contains(key) || !request[key].is_string()) {
      return kExitUsage;
    }
  }
  std::string written;
  MergeOptions options;
  options.inputs = {request["checkpoint"].get<std::string>()};
  options.output_dir = request["output_dir"].get<std::string>();
  options.weights = checkpoint::weights_kind_from_name(request["kind"].get<std::string>())
                        .value_or(checkpoint::WeightsKind::kRegular);
  options.dtype = "bfloat16";  // as lmms-engine's merger writes them
  options.on_written = [&written](const std::string& path) { written = path; };
  std::ostringstream out;
  std::ostringstream err;
  const int code = run_merge(options, files, out, err);
  if (code == kExitDone) {
    answer({{"merged_path", written}});
  } else {
    answer({{"error", err.str()}, {"exit_code", code}});
  }
  return code;
}

}  // namespace evalcar::cli
