// Sockets that are listened on, and what the kernel is told of those that come in.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "agent/http/access.h"
#include "agent/supervise/child_process.h"
#include "store/base/result.h"

namespace evalcar::http {

/// As Listener::listen_tcp(); `port`: the one that was taken.
Result<supervise::OwnedFd> listen_on(const Endpoint& endpoint, std::uint16_t& port);
/// As Listener::listen_unix(). The file stays where the socket is closed.
Result<supervise::OwnedFd> listen_at(const std::string& path);

/// Whose machine went, or whose network, sends no end: the kernel would go on sending to him for a
/// quarter of an hour, and what waits for its turn would find all places taken. He is asked while
/// there is nothing to send, and given up once nothing was acknowledged for so long.
void notice_vanished_peer(int fd, std::chrono::milliseconds patience);

}  // namespace evalcar::http
