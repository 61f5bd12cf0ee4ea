#include "evaluator/service/channel.h"

#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <string>

using namespace evalcar;
using protocol::Bye;
using protocol::Cancel;
using protocol::Load;
using service::Channel;

namespace {

/// The agent's end of a socketpair whose other end a Channel owns.
struct Agent {
  int mine = -1;
  int theirs = -1;
  Agent() {
    int pair[2] = {-1, -1};
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0);
    mine = pair[0];
    theirs = pair[1];
  }
  ~Agent() { close(); }
  Agent(const Agent&) = delete;
  Agent& operator=(const Agent&) = delete;
  void close() {
    if (mine >= 0) ::close(mine);
    mine = -1;
  }
  void write(const std::string& text) const {
    REQUIRE(::send(mine, text.data(), text.size(), MSG_NOSIGNAL) > 0);
  }
};

}  // namespace

TEST_CASE("a message that arrives in pieces is one message") {
  Agent agent;
  Channel channel(agent.theirs, [](const protocol::Message&) {});
  const std::string line = protocol::encode(Load{.id = "7", .dir = "/c", .weights = "ema"}) + "\n";

  agent.write(line.substr(0, 10));
  agent.write(line.substr(10));

  const protocol::Message message = channel.receive();
  REQUIRE(std::holds_alternative<Load>(message));
  CHECK(std::get<Load>(message).weights == "ema");
}

TEST_CASE("a prefetch is heard while nobody receives, and nobody receives it") {
  Agent agent;
  std::atomic<bool> heard = false;
  Channel channel(agent.theirs, [&](const protocol::Message& message) {
    if (!std::holds_alternative<protocol::Prefetch>(message)) return;
    heard = std::get<protocol::Prefetch>(message).dir == "/c";
    heard.notify_all();
  });

  agent.write(protocol::encode(protocol::Prefetch{.dir = "/c", .weights = "ema"}) + "\n");
  heard.wait(false);
  agent.write(protocol::encode(Load{.id = "7", .dir = "/c", .weights = "ema"}) + "\n");

  CHECK(std::holds_alternative<Load>(channel.receive()));
}

TEST_CASE("a cancel is heard while nobody receives") {
  Agent agent;
  std::atomic<bool> heard = false;
  Channel channel(agent.theirs, [&](const protocol::Message& message) {
    if (std::holds_alternative<Cancel>(message)) {
      heard = true;
      heard.notify_all();
    }
  });

  agent.write(protocol::encode(Cancel{.id = "1"}) + "\n");
  heard.wait(false);

  CHECK(heard);
}

TEST_CASE("the death of the agent reads as bye, again and again") {
  Agent agent;
  Channel channel(agent.theirs, [](const protocol::Message&) {});

  agent.close();

  CHECK(std::holds_alternative<Bye>(channel.receive()));
  CHECK(std::holds_alternative<Bye>(channel.receive()));
}

TEST_CASE("whoever does not speak the protocol is told so and then ignored") {
  Agent agent;
  Channel channel(agent.theirs, [](const protocol::Message&) {});

  agent.write("GET / HTTP/1.1\n");

  CHECK(std::holds_alternative<Bye>(channel.receive()));
  std::string answer(4096, '\0');
  const ssize_t n = ::recv(agent.mine, answer.data(), answer.size(), 0);
  REQUIRE(n > 0);
  answer.resize(static_cast<std::size_t>(n));
  CHECK(answer.find("not a JSON object") != std::string::npos);
}

TEST_CASE("sending to an agent that is gone neither fails nor raises a signal") {
  Agent agent;
  Channel channel(agent.theirs, [](const protocol::Message&) {});
  agent.close();
  for (int i = 0; i < 100; ++i) channel.send(protocol::Hello{});
  CHECK(std::holds_alternative<Bye>(channel.receive()));
}
