// libtorch begins each process with other random numbers. Here each case begins with the same ones,
// alone or behind others, so that what fails once fails again.
#include <ATen/Context.h>

#include <catch2/reporters/catch_reporter_event_listener.hpp>
#include <catch2/reporters/catch_reporter_registrars.hpp>

namespace {

class SeedEachCase final : public Catch::EventListenerBase {
 public:
  using EventListenerBase::EventListenerBase;
  void testCaseStarting(const Catch::TestCaseInfo&) override { at::manual_seed(1); }
};

}  // namespace

CATCH_REGISTER_LISTENER(SeedEachCase)
