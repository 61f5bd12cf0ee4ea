#include "agent/publish/unused_pictures.h"

#include <catch2/catch_test_macros.hpp>
#include <fstream>

#include "store/protocol/picture_name.h"
#include "tests/unit/state/scenario.h"
#include "tests/unit/support/memory_file_system.h"

using namespace evalcar;
using namespace evalcar::publish;
using std::chrono::hours;
using test::must;

namespace {

const std::string kFolder = "/state/sample-pictures";

std::string picture(char letter) { return std::string(64, letter) + ".jpg"; }
std::string path(char letter) { return protocol::sample_picture_path(kFolder, picture(letter)); }

/// A database whose samples have the pictures "a" and "b", and files of "a", "b", "c" and "d".
struct Bench {
  test::Scenario s;
  test::MemoryFileSystem files{s.clock};

  Bench() {
    const std::int64_t id = s.plan(5).id;
    s.bring(id, state::EvaluationState::kEvaluating, "w");
    must(s.store->record_samples(
        id, std::vector<protocol::Scored>{
                {"", "docvqa_val", 0, "{}", "f1", {picture('a'), picture('b')}}}));
    for (const char letter : {'a', 'b', 'c', 'd'}) files.put_file(path(letter), "jpeg");
    s.clock.advance(hours{25});
  }
};

}  // namespace

TEST_CASE("pictures that no sample has go once nobody asked for them in a day") {
  Bench b;
  b.files.put_file(path('d'), "asked for now");
  b.files.put_file(kFolder + "/cc/notes.txt", "somebody's");
  b.files.put_file(kFolder + "/" + picture('e'), "not where they lie");

  const RemovedPictures removed =
      must(remove_unused_pictures(b.files, b.s.clock, kFolder, {b.s.db()}));

  CHECK(removed.files == 1);
  CHECK(removed.bytes == 4);
  CHECK_FALSE(removed.more);
  CHECK(b.files.exists(path('a')));
  CHECK(b.files.exists(path('b')));
  CHECK_FALSE(b.files.exists(path('c')));
  CHECK(b.files.exists(path('d')));
  CHECK(b.files.exists(kFolder + "/cc/notes.txt"));
  CHECK(b.files.exists(kFolder + "/" + picture('e')));
}

TEST_CASE("nothing goes where a database cannot be read") {
  Bench b;
  std::ofstream(b.s.folder / "other.db") << "not a database, but long enough to be read as one";

  CHECK_FALSE(
      remove_unused_pictures(b.files, b.s.clock, kFolder, {b.s.db(), b.s.folder / "other.db"})
          .has_value());

  CHECK(b.files.exists(path('c')));
}

TEST_CASE("a call removes so many and says that there is more; a missing folder is success") {
  Bench b;
  const auto first = must(remove_unused_pictures(b.files, b.s.clock, kFolder, {b.s.db()}, 1));
  CHECK(first.files == 1);
  CHECK(first.more);
  const auto second = must(remove_unused_pictures(b.files, b.s.clock, kFolder, {b.s.db()}, 1));
  CHECK(second.files == 1);
  CHECK_FALSE(second.more);

  CHECK(must(remove_unused_pictures(b.files, b.s.clock, "/nowhere", {})).files == 0);
}
