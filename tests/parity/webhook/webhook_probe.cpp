// Posts to a real server, for the Python tests.
//
//   webhook_probe URL SECRET COUNT    results 1 to COUNT, with pauses of milliseconds between
//   tries;
//                                     prints "delivered" or, after ten failures in a row, the
//                                     trouble
#include <chrono>
#include <iostream>
#include <string>
#include <thread>

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include "agent/webhook/courier.h"

using namespace evalcar;

int main(int argc, char** argv) {
  if (argc != 4) {
    std::cerr << "usage: webhook_probe URL SECRET COUNT\n";
    return 2;
  }
  spdlog::set_default_logger(spdlog::stderr_logger_mt("webhook"));  // stdout is the answer
  constexpr std::int64_t kMostFailures = 10;
  webhook::CourierOptions options;
  options.url = argv[1];
  options.secret = argv[2];
  options.version = "1.0";
  options.first_pause = std::chrono::milliseconds(10);
  options.longest_pause = std::chrono::milliseconds(20);
  auto poster = webhook::make_poster();
  if (!poster.has_value()) {
    std::cerr << poster.error().message << "\n";
    return 1;
  }
  webhook::Courier courier(options, std::move(poster).value());
  const std::int64_t count = std::stoll(argv[3]);
  for (std::int64_t seq = 1; seq <= count; ++seq) {
    const std::string body = R"({"seq":)" + std::to_string(seq) + R"(,"text":"ä"})";
    while (!courier.take({seq, "run-1", body})) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }
  while (!courier.idle() && courier.failures() < kMostFailures) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  std::cout << (courier.idle() ? "delivered" : courier.trouble()) << "\n";
  return 0;
}
