// Where a database lies.
#include "store/state/location.h"

#include <catch2/catch_test_macros.hpp>
#include <map>
#include <string>
#include <vector>

#include "store/base/hash.h"
#include "tests/unit/state/scenario.h"
#include "tests/unit/support/memory_file_system.h"

using namespace evalcar;
using namespace evalcar::state;
using test::must;

TEST_CASE("the state directory follows systemd, then XDG, then home") {
  std::map<std::string, std::string> variables;
  const Environment environment = [&](const char* name) { return variables[name]; };
  CHECK(state_directory(environment) == "/var/lib/evalcar");
  variables["HOME"] = "/people/u";
  CHECK(state_directory(environment) == "/people/u/.local/state/evalcar");
  variables["XDG_STATE_HOME"] = "/xdg";
  CHECK(state_directory(environment) == "/xdg/evalcar");
  variables["STATE_DIRECTORY"] = "/var/lib/evalcar:/more";
  CHECK(state_directory(environment) == "/var/lib/evalcar");
}

TEST_CASE("a database is named after its output directory's real path, also before it exists") {
  test::FakeClock clock;
  test::MemoryFileSystem files(clock);
  files.put_directory("/data/runs");
  must(files.symbolic_link("/data/runs", "/link"));
  const Environment environment = [](const char* name) {
    return std::string(name) == "STATE_DIRECTORY" ? std::string("/state") : std::string();
  };
  const std::string stem = "new-" + sha256_hex("/data/runs/new").substr(0, 8);
  CHECK(must(default_database_path(files, "/link/new", environment)) == "/state/" + stem + ".db");
  CHECK(must(list_databases(files, environment)).empty());
  files.put_file("/state/b.db", "");
  files.put_file("/state/a.db", "");
  files.put_file("/state/a.db-wal", "");
  CHECK(must(list_databases(files, environment)) ==
        std::vector<std::string>{"/state/a.db", "/state/b.db"});
}

TEST_CASE("a person sees the services' databases beside his own, as far as they may be read") {
  test::FakeClock clock;
  test::MemoryFileSystem files(clock);
  files.put_directory("/data/runs/a");
  files.put_file("/people/u/.local/state/evalcar/mine.db", "");
  std::map<std::string, std::string> variables = {{"HOME", "/people/u"}};
  const Environment environment = [&](const char* name) { return variables[name]; };
  const std::string name = "a-" + sha256_hex("/data/runs/a").substr(0, 8) + ".db";
  CHECK(must(find_database(files, "/data/runs/a", environment)) ==
        "/people/u/.local/state/evalcar/" + name);

  files.put_file("/var/lib/evalcar/old.db", "");
  files.put_file("/var/lib/evalcar/unit/" + name, "");
  files.put_file("/var/lib/evalcar/unit/" + name + ".lock", "");

  CHECK(must(list_databases(files, environment)) ==
        std::vector<std::string>{"/people/u/.local/state/evalcar/mine.db",
                                 "/var/lib/evalcar/old.db", "/var/lib/evalcar/unit/" + name});
  CHECK(must(find_database(files, "/data/runs/a", environment)) == "/var/lib/evalcar/unit/" + name);
  variables["XDG_STATE_HOME"] = "/xdg";
  CHECK(must(list_databases(files, environment)).empty());
  variables = {};  // root without a home
  CHECK(must(list_databases(files, environment)).size() == 2);
}

TEST_CASE("a name that leaves no room for what is put behind it is cut between characters") {
  const std::string fits = "/data/" + std::string(234, 'a');
  const std::string long_name = "/data/x" + [] {
    std::string text;
    for (int i = 0; i < 120; ++i) text += "\xc3\xa9";  // é
    return text;
  }();

  CHECK(database_stem(fits).size() == 234 + 9);
  const std::string stem = database_stem(long_name);
  CHECK(stem.size() == 199 + 9);
  CHECK(stem.ends_with("\xc3\xa9-" + sha256_hex(long_name).substr(0, 8)));
}
