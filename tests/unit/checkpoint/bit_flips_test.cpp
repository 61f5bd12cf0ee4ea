// A disk or a network that turns bits of a torch.save file, and somebody who turns them and has the
// checksums right.
#include <catch2/catch_test_macros.hpp>
#include <map>
#include <random>

#include "tests/unit/checkpoint/torch_files.h"
#include "tests/unit/support/fake_clock.h"
#include "tests/unit/support/memory_file_system.h"

using namespace evalcar;
using namespace evalcar::checkpoint;
using namespace evalcar::checkpoint::testing;

namespace {

constexpr int kFiles = 10'000;
const std::string kFolder = "/run/checkpoint-5";
const std::string kFile = kFolder + "/pytorch_model.bin";

/// Of two tensors that share a storage, and a third.
std::string pickle() {
  return p_whole(p_dict(
      {{"a.weight", TensorText{}.text()},
       {"b.weight", TensorText{.size = {3, 2}, .stride = {1, 3}}.text()},
       {"c.bias",
        TensorText{.key = "1", .numel = 4, .offset = 1, .size = {3}, .stride = {1}}.text()}}));
}

std::string file_of(const std::string& pickle) {
  return make_zip(torch_parts(
      pickle, {{"0", bytes_of<float>({1, 2, 3, 4, 5, 6})}, {"1", bytes_of<float>({7, 8, 9, 10})}}));
}

/// One bit in two cases of three, else up to eight.
void turn_bits(std::string& bytes, std::mt19937& random) {
  const unsigned count = random() % 3 == 0 ? 1 + random() % 8 : 1;
  for (unsigned i = 0; i < count; ++i) {
    const std::size_t bit = random() % (bytes.size() * 8);
    bytes[bit / 8] = static_cast<char>(static_cast<unsigned char>(bytes[bit / 8]) ^ 1U << bit % 8);
  }
}

using Tensors = std::map<std::string, std::string>;

/// Every tensor's bytes by name, dtype and shape; an error where anything of it is refused.
Result<Tensors> read_all(const std::string& content) {
  test::FakeClock clock;
  test::MemoryFileSystem files(clock);
  files.put_file(kFile, content);
  files.put_file(kFolder + "/config.json", "{}");
  EVALCAR_ASSIGN_OR_RETURN(const Plan plan, make_plan(files, kFolder, WeightsKind::kRegular));
  EVALCAR_ASSIGN_OR_RETURN(const PlanReader reader, PlanReader::open(files, plan));
  Tensors tensors;
  for (std::size_t i = 0; i < plan.tensors.size(); ++i) {
    const TensorPlan& tensor = plan.tensors[i];
    REQUIRE(tensor.bytes() <= content.size());  // nobody asks for memory that no file justifies
    std::string bytes(tensor.bytes(), '\0');
    EVALCAR_RETURN_IF_ERROR(reader.read(i, std::as_writable_bytes(std::span(bytes))));
    std::string key = tensor.name + " " + std::string(dtype_name(tensor.dtype));
    for (const std::int64_t size : tensor.shape) key += " " + std::to_string(size);
    tensors.emplace(std::move(key), std::move(bytes));
  }
  EVALCAR_RETURN_IF_ERROR(reader.verify_checksums(1));
  return tensors;
}

}  // namespace

TEST_CASE("ten thousand torch files with turned bits are refused, or give the same tensors") {
  const std::string good = file_of(pickle());
  const auto expected = read_all(good);
  REQUIRE(expected.has_value());
  REQUIRE(expected->size() == 3);
  std::mt19937 random(1);
  int refused = 0;
  for (int n = 0; n < kFiles; ++n) {
    std::string content = good;
    turn_bits(content, random);
    const auto tensors = read_all(content);
    if (!tensors.has_value()) {
      ++refused;
      continue;
    }
    if (*tensors != *expected) {
      INFO("number " << n);
      CHECK(*tensors == *expected);
    }
  }
  CHECK(refused > kFiles / 2);
  CHECK(refused < kFiles);  // times, padding and the like mean nothing
}

TEST_CASE(
    "ten thousand pickles with turned bits and right checksums give no tensor that its file does "
    "not "
    "hold") {
  const std::string good = pickle();
  std::mt19937 random(2);
  int read = 0;
  for (int n = 0; n < kFiles; ++n) {
    std::string turned = good;
    turn_bits(turned, random);
    const auto tensors = read_all(file_of(turned));  // which looks at each tensor's size
    if (!tensors.has_value()) {
      CHECK_FALSE(tensors.error().message.empty());
      continue;
    }
    ++read;
  }
  CHECK(read < kFiles);
}
