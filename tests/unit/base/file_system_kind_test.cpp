#include "store/base/file_system_kind.h"

#include <catch2/catch_test_macros.hpp>

using namespace evalcar;

TEST_CASE("local and other file systems are told apart by their type") {
  CHECK(file_system_kind(0xEF53).local);
  CHECK(file_system_kind(0x01021994).name == "tmpfs");
  CHECK_FALSE(file_system_kind(0x6969).local);
  CHECK(file_system_kind(0xFFFFFFFFFF534D42).name == "CIFS");  // sign-extended
}

TEST_CASE("a file system whose type is not known is named by it and taken for one of a network") {
  const FileSystemKind kind = file_system_kind(0x1234);
  CHECK(kind.name == "type 0x1234");
  CHECK_FALSE(kind.known);
  CHECK_FALSE(kind.local);
}

TEST_CASE("a database lies on a local disk, or where nothing is known against it") {
  CHECK(file_system_kind(0xEF53).can_hold_database());
  CHECK(file_system_kind(0x1234).can_hold_database());
  for (const std::uint64_t type :
       {0x6969U, 0x65735546U, 0x7461636FU, 0x01161970U, 0x6A656A63U, 0xAAD7AAEAU}) {
    INFO(file_system_kind(type).name);
    CHECK_FALSE(file_system_kind(type).can_hold_database());
  }
}
