#include <catch2/catch_test_macros.hpp>
#include <filesystem>

#include "store/checkpoint/dcp_metadata.h"
#include "store/checkpoint/file_window.h"
#include "tests/unit/checkpoint/dcp_files.h"

using namespace evalcar;
using namespace evalcar::checkpoint;
using namespace evalcar::checkpoint::testing;

namespace {

constexpr const char* kFolder = "checkpoint-5/";

std::string floats(const std::vector<float>& values) { return bytes_of(values); }

/// {"model": {"w": 3 × 2 over two files, the second transposed, "b": whole}, "optimizer": {"m":
/// …}}.
DcpText two_files() {
  DcpText text;
  text.shapes = {{"model.w", {3, 2}}, {"model.b", {2}}, {"optimizer.m", {2}}};
  text.paths = {{"model.w", {"model", "w"}},
                {"model.b", {"model", "b"}},
                {"optimizer.m", {"optimizer", "m"}}};
  text.pieces = {
      {"optimizer.m", {0}, {2}, "__2_0.distcp", floats({-1, -2})},
      {"model.b", {0}, {2}, "__1_0.distcp", floats({8, 9})},
      {"model.w", {1, 0}, {2, 2}, "__1_0.distcp", floats({3, 5, 4, 6}), {1, 2}},
      {"model.w", {0, 0}, {1, 2}, "__0_0.distcp", floats({1, 2})},
  };
  return text;
}

/// Data first, the metadata last, each a second after the one before.
void write_dcp(const ScratchFolder& scratch, DcpText text, const std::string& folder = kFolder,
               const std::string& metadata_name = ".metadata") {
  const std::string metadata = text.build();
  RealFileSystem files;
  std::int64_t time_ns = 1'700'000'000'000'000'000;
  const auto write = [&](const std::string& name, const std::string& bytes) {
    scratch.write(folder + name, bytes);
    REQUIRE(files.set_mtime(scratch.at(folder + name), time_ns += 1'000'000'000).has_value());
  };
  for (const auto& [name, bytes] : text.data) write(name, bytes);
  write(metadata_name, metadata);
  scratch.write("checkpoint-5/config.json", "{}");
}

KindState judged(const ScratchFolder& scratch, WeightsKind kind = WeightsKind::kRegular) {
  const auto report = inspect_layout(RealFileSystem(), scratch.at("checkpoint-5"));
  REQUIRE(report.has_value());
  CHECK(report->layout == Layout::kDcp);
  return report->kinds[kind == WeightsKind::kRegular ? 0 : 1];
}

Result<Plan> plan_of(const ScratchFolder& scratch, WeightsKind kind = WeightsKind::kRegular) {
  return make_plan(RealFileSystem(), scratch.at("checkpoint-5"), kind);
}

Status read_metadata(const std::string& bytes) {
  DcpMetadataReader reader;
  EVALCAR_RETURN_IF_ERROR(reader.add(bytes, ".metadata"));
  EVALCAR_ASSIGN_OR_RETURN(const auto metadata, reader.finish());
  return metadata.weights.empty() ? Status(make_error(ErrorCode::kInternal, "empty")) : Status();
}

}  // namespace

TEST_CASE("chunks of two data files are put together, in whatever order their elements lie") {
  const ScratchFolder scratch;
  write_dcp(scratch, two_files());

  const auto plan = plan_of(scratch);

  REQUIRE(plan.has_value());
  CHECK(plan->world_size == 3);
  REQUIRE(plan->tensors.size() == 2);
  CHECK(tensor_of(*plan, "w") == floats({1, 2, 3, 4, 5, 6}));
  CHECK(tensor_of(*plan, "b") == floats({8, 9}));
  CHECK(plan->records.size() == 3);
}

TEST_CASE("the metadata of every Python is read, and getattr there is no function") {
  const ScratchFolder scratch;
  DcpText text = two_files();
  text.format = p_format_by_name();
  write_dcp(scratch, text);
  CHECK(plan_of(scratch).has_value());

  const std::string format = p_global(kDcpModule, "_MEM_FORMAT_ENCODING");
  const std::string getattr = p_global("builtins", "getattr");
  for (const std::string& arguments :
       {p_tuple({p_global("pathlib", "PosixPath"), p_text("touch")}), p_tuple({format}),
        p_tuple({format, p_int(1)}), p_tuple({format, p_text("a"), p_text("b")}),
        p_tuple({p_text("os"), p_text("system")}), std::string(")")}) {
    text.format = p_call(getattr, arguments);
    write_dcp(scratch, text);
    CHECK_FALSE(plan_of(scratch).has_value());
  }
  text.format = p_call(p_format_by_name(), p_tuple({p_text("touch /tmp/evil")}));
  write_dcp(scratch, text);
  CHECK_FALSE(plan_of(scratch).has_value());
}

TEST_CASE("a complete DCP names the files that hold weights, its metadata behind them") {
  const ScratchFolder scratch;
  write_dcp(scratch, two_files());

  const KindState state = judged(scratch);

  CHECK(state.completeness == Completeness::kComplete);
  CHECK(state.files ==
        std::vector<std::string>{"__1_0.distcp", "__0_0.distcp", ".metadata", "config.json"});
  std::filesystem::remove(scratch.at("checkpoint-5/__2_0.distcp"));  // the optimizer's alone
  CHECK(judged(scratch).completeness == Completeness::kComplete);
}

TEST_CASE("both kinds of an accelerate checkpoint are found, and an empty EMA folder waits") {
  const ScratchFolder scratch;
  write_dcp(scratch, two_files(), "checkpoint-5/pytorch_model_fsdp_0/");
  CHECK(judged(scratch).completeness == Completeness::kComplete);
  CHECK(judged(scratch, WeightsKind::kEma).completeness == Completeness::kAbsent);

  std::filesystem::create_directory(scratch.at("checkpoint-5/pytorch_ema_model_fsdp_0"));
  CHECK(judged(scratch, WeightsKind::kEma).completeness == Completeness::kPending);
  scratch.write("checkpoint-5/pytorch_ema_model_fsdp_0/__0_0.distcp", "PK");
  CHECK(judged(scratch, WeightsKind::kEma).completeness == Completeness::kIncomplete);

  write_dcp(scratch, two_files(), "checkpoint-5/pytorch_ema_model_fsdp_0/");
  CHECK(judged(scratch, WeightsKind::kEma).completeness == Completeness::kComplete);
  REQUIRE(plan_of(scratch, WeightsKind::kEma).has_value());
  CHECK(plan_of(scratch, WeightsKind::kEma)->kind == WeightsKind::kEma);
}

TEST_CASE("without a configuration a DCP is complete where a base model is named") {
  const ScratchFolder scratch;
  write_dcp(scratch, two_files());
  std::filesystem::remove(scratch.at("checkpoint-5/config.json"));
  CHECK(judged(scratch).completeness == Completeness::kIncomplete);
  CHECK(judged(scratch).reason.find("evaluate.base_model") != std::string::npos);

  LayoutOptions options;
  options.base_model = "/models/base";
  const auto report = inspect_layout(RealFileSystem(), scratch.at("checkpoint-5"), options);

  REQUIRE(report.has_value());
  CHECK(report->kinds[0].completeness == Completeness::kComplete);
}

TEST_CASE("the metadata of ranks that saved alone is put together when all of it is there") {
  const ScratchFolder scratch;
  DcpText text = two_files();
  text.pieces = {{"model.b", {0}, {2}, "__0_0.distcp", floats({8, 9})},
                 {"model.w", {0, 0}, {1, 2}, "__0_0.distcp", floats({1, 2})}};
  write_dcp(scratch, text, kFolder, "__0.metadata");
  CHECK(judged(scratch).completeness == Completeness::kIncomplete);  // a gap

  text.pieces = {{"model.b", {0}, {2}, "__1_0.distcp", floats({8, 9})},
                 {"model.w", {1, 0}, {2, 2}, "__1_0.distcp", floats({3, 4, 5, 6})}};
  write_dcp(scratch, text, kFolder, "__1.metadata");
  const auto plan = plan_of(scratch);
  REQUIRE(plan.has_value());
  CHECK(tensor_of(*plan, "w") == floats({1, 2, 3, 4, 5, 6}));
  CHECK(plan->files.size() == 4);

  std::filesystem::remove(scratch.at("checkpoint-5/__0.metadata"));
  CHECK(judged(scratch).reason.find("__0.metadata: is missing") != std::string::npos);
}

TEST_CASE("a data file that is cut anywhere is incomplete, not damaged") {
  const ScratchFolder scratch;
  write_dcp(scratch, two_files());
  const std::string whole = scratch.read("checkpoint-5/__1_0.distcp");

  for (std::size_t size = 0; size < whole.size(); size += 7) {
    INFO(size);
    scratch.write("checkpoint-5/__1_0.distcp", whole.substr(0, size));
    const KindState state = judged(scratch);
    CHECK(state.completeness == Completeness::kIncomplete);
    CHECK_FALSE(state.damaged);
    CHECK(state.reason.find("__1_0.distcp") != std::string::npos);
  }
}

TEST_CASE("every changed byte of an item is seen, at the latest by its checksum") {
  const ScratchFolder scratch;
  write_dcp(scratch, two_files());
  const RealFileSystem files;
  const std::string path = "checkpoint-5/__0_0.distcp";
  const std::string whole = scratch.read(path);
  const auto good = hash_plan(files, plan_of(scratch).value(), 1, {});
  REQUIRE(good.has_value());

  std::size_t refused = 0;
  for (std::size_t i = 0; i < whole.size(); ++i) {
    std::string bytes = whole;
    bytes[i] = static_cast<char>(bytes[i] ^ 0x5a);
    scratch.write(path, bytes);
    REQUIRE(RealFileSystem().set_mtime(scratch.at(path), 1'700'000'000'000'000'000).has_value());
    const auto plan = plan_of(scratch);
    const auto digests = plan.has_value() ? hash_plan(files, *plan, 1, {})
                                          : Result<std::vector<TensorDigest>>(plan.error());
    if (!digests.has_value()) {
      ++refused;
      CHECK(digests.error().message.find("__0_0.distcp") != std::string::npos);
      continue;
    }
    // What the format does not use (versions, times, attributes) may differ; the weights do not.
    CHECK(weights_sha256(*digests) == weights_sha256(*good));
  }
  CHECK(refused > whole.size() / 2);
}

TEST_CASE("every beginning of the metadata is refused, and no changed byte makes it crash") {
  DcpText text = two_files();
  const std::string whole = text.build();
  REQUIRE(read_metadata(whole).has_value());

  for (std::size_t size = 0; size < whole.size(); ++size) {
    INFO(size);
    CHECK_FALSE(read_metadata(whole.substr(0, size)).has_value());
  }
  std::size_t answers = 0;
  for (std::size_t i = 0; i < whole.size(); ++i) {
    for (const int flip : {1, 0x80, 0xff}) {
      std::string bytes = whole;
      bytes[i] = static_cast<char>(bytes[i] ^ flip);
      answers += read_metadata(bytes).has_value() ? 1 : 1;
    }
  }
  CHECK(answers == 3 * whole.size());
}

TEST_CASE("where some data files are newer than the metadata, two saves stand side by side") {
  const ScratchFolder scratch;
  write_dcp(scratch, two_files());
  RealFileSystem files;
  const auto age = [&](const char* name, std::int64_t seconds) {
    REQUIRE(files.set_mtime(scratch.at(std::string(kFolder) + name), seconds * 1'000'000'000)
                .has_value());
  };

  age("__0_0.distcp", 1'800'000'000);
  CHECK(judged(scratch).completeness == Completeness::kIncomplete);
  CHECK(judged(scratch).reason.find("__0_0.distcp: is newer") != std::string::npos);
  CHECK_FALSE(judged(scratch).damaged);
  age("__1_0.distcp", 1'800'000'000);  // the optimizer's file does not count
  CHECK(judged(scratch).completeness == Completeness::kComplete);
  age("__0_0.distcp", 1'700'000'000);
  age(".metadata", 1'800'000'000);
  CHECK(judged(scratch).completeness == Completeness::kComplete);
  scratch.write("checkpoint-5/.metadata.tmp", "the next one");
  age(".metadata.tmp", 1'800'000'001);
  CHECK(judged(scratch).reason.find(".metadata.tmp") != std::string::npos);
}

TEST_CASE("each list of names is closed to the other's") {
  const std::string chunk = p_whole(p_global(kDcpModule, "ChunkStorageMetadata") + ")\x81");
  const std::string storage = p_whole(p_global("torch", "FloatStorage"));
  CHECK(Pickle::parse(chunk, "m", PickleNames::kDcpMetadata).has_value());
  CHECK_FALSE(Pickle::parse(chunk, "m", PickleNames::kTensors).has_value());
  CHECK(Pickle::parse(storage, "m", PickleNames::kTensors).has_value());
  CHECK_FALSE(Pickle::parse(storage, "m", PickleNames::kDcpMetadata).has_value());

  // A tuple is the state of TensorProperties alone, and only MetadataIndex is a key.
  const std::string tuple_state = p_object(p_global(kDcpModule, "StorageMeta"), p_ints({1}));
  CHECK_FALSE(Pickle::parse(p_whole(tuple_state), "m", PickleNames::kDcpMetadata).has_value());
  const std::string key = p_global(kDcpModule, "StorageMeta") + ")\x81";
  CHECK_FALSE(Pickle::parse(p_whole("}" + key + "Ns"), "m", PickleNames::kDcpMetadata).has_value());
}

TEST_CASE("objects are limited by the size of the file that makes them") {
  // A list, filled in batches of `each`.
  const auto parse = [](int batches, const std::string& each) {
    std::string body = "]";
    for (int i = 0; i < batches; ++i) body += "(" + each + "e";
    return Pickle::parse(p_whole(body), "m", PickleNames::kDcpMetadata);
  };
  const std::string lists(100'000, ']');
  CHECK(parse(9, lists).has_value());
  CHECK_FALSE(parse(30, lists).has_value());
  CHECK(parse(30, std::string(100'000, ')')).has_value());  // all empty tuples are one
  std::string numbers;
  for (int i = 0; i < 100'000; ++i) numbers += std::string("M\x01\x02", 3);
  CHECK(parse(30, numbers).has_value());  // and small numbers no object at all
  CHECK_FALSE(parse(1, std::string(1'100'000, 'N')).has_value());  // the stack has a limit
}

TEST_CASE("entries, items and dimensions are limited by the size of the metadata") {
  const auto refused = [](const std::string& bytes, std::string_view part) {
    const Status read = read_metadata(bytes);
    REQUIRE_FALSE(read.has_value());
    INFO(read.error().message);
    return read.error().message.find(part) != std::string::npos;
  };
  const auto metadata = [](const std::string& entries, const std::string& storage) {
    return p_whole(p_object(p_global(kDcpModule, "Metadata"),
                            p_dict({{"state_dict_metadata", entries}, {"storage_data", storage}})));
  };
  const std::string bytes = p_global(kDcpModule, "BytesStorageMetadata") + ")\x81";
  std::string entries = "}" + p_text("b") + bytes + "q\x01s(";
  for (int i = 0; i < 5000; ++i) entries += p_text(std::to_string(i)) + "h\x01";
  CHECK(refused(metadata(entries + "u", "}"), "more entries"));

  const std::string key =
      p_object(p_global(kDcpModule, "MetadataIndex"), p_dict({{"fqn", "h\x01"}}));
  const std::string info =
      p_object(p_global(kDcpFiles, "_StorageInfo"),
               p_dict({{"relative_path", "h\x01"}, {"offset", p_int(0)}, {"length", p_int(0)}}));
  std::string storage = "}" + key + "q\x02" + info + "q\x03s(";
  for (int i = 0; i < 5000; ++i) storage += "h\x02h\x03";
  CHECK(refused(metadata("}" + p_text("b") + "q\x01" + bytes + "s", storage + "u"), "more items"));
}

TEST_CASE("a tensor that is of a form which is not read is unsupported for the plan, not damaged") {
  const ScratchFolder scratch;
  write_dcp(scratch, two_files());
  std::string metadata = two_files().build();
  for (std::size_t at = 0; (at = metadata.find("torch.strided", at)) != std::string::npos;) {
    metadata.replace(at, 13, "torch.mkldnn_");
  }
  scratch.write(std::string(kFolder) + ".metadata", metadata);

  const KindState state = judged(scratch);
  const auto plan = plan_of(scratch);

  CHECK(state.completeness == Completeness::kIncomplete);
  CHECK(state.damaged);  // waiting cannot help
  CHECK(state.unsupported);
  REQUIRE_FALSE(plan.has_value());
  CHECK(plan.error().code == ErrorCode::kUnsupported);
  CHECK(plan.error().message.find("torch.mkldnn_") != std::string::npos);
}

TEST_CASE("a chunk that is named over and over takes no memory of its own") {
  DcpText text = two_files();
  std::string whole = text.build();
  // The list of b's one chunk: "](" chunk "e". The chunk is stored in the memo and fetched again.
  const std::string chunk = p_object(p_global(kDcpModule, "ChunkStorageMetadata"),
                                     p_dict({{"offsets", p_size({0})}, {"sizes", p_size({2})}}));
  const std::size_t at = whole.find(chunk);
  REQUIRE(at != std::string::npos);
  std::string many = "q\x01";
  for (int i = 0; i < 300'000; ++i) many += "h\x01";

  const Status read = read_metadata(whole.insert(at + chunk.size(), many));

  REQUIRE_FALSE(read.has_value());
  CHECK(read.error().message.find("more chunks") != std::string::npos);
}

TEST_CASE("a window reads what the file has at its place, near its ends and across") {
  std::string bytes;
  for (int i = 0; i < 20'000; ++i) bytes.push_back(static_cast<char>(i * 7919 >> 5));
  const MemoryFile file(bytes);

  for (const std::uint64_t size : {0U, 1U, 2047U, 2048U, 4096U, 4097U, 9000U}) {
    const auto window = FileWindow::open(file, 33, size, "f");
    REQUIRE(window.has_value());
    CHECK(window->info()->size_bytes == size);
    for (const std::uint64_t at :
         {0U, 1U, 2000U, 2040U, 2048U, 3000U, 6951U, 6952U, 8999U, 9000U}) {
      for (const std::size_t count : {1U, 16U, 100U, 5000U}) {
        std::string out(count, '\0');
        const auto read =
            window->read_at(at, std::as_writable_bytes(std::span<char>(out.data(), out.size())));
        REQUIRE(read.has_value());
        const std::string inside = bytes.substr(33, size);
        CHECK(out.substr(0, *read) == (at < size ? inside.substr(at, *read) : ""));
        CHECK(*read == (at < size ? std::min<std::uint64_t>(count, size - at) : 0));
      }
    }
  }
  CHECK_FALSE(FileWindow::open(file, 19'000, 1'001, "f").has_value());
}
