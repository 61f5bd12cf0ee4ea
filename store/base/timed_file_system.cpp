#include "store/base/timed_file_system.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <optional>
#include <utility>

#include "store/base/file_system_kind.h"

namespace evalcar {
namespace {

/// A read or write is one call for each such piece, so that a slow disk is not taken for a dead
/// one.
constexpr std::size_t kPiece = std::size_t{1} << 20U;

bool is_below(std::string_view path, std::string_view tree) {
  return path.starts_with(tree) &&
         (path.size() == tree.size() || path[tree.size()] == '/' || tree.ends_with('/'));
}

/// What does not exist yet will be on the file system of the folder that it appears in.
Result<std::uint64_t> type_of_future(const FileSystem& files, const std::string& path) {
  auto type = files.file_system_type(path);
  const std::string parent = parent_path(path);
  if (type.has_value() || type.error().code != ErrorCode::kNotFound || parent == path) return type;
  return type_of_future(files, parent);
}

/// Makes a call that returns Result<T> in the thread. `call` owns what it touches.
template <typename T, typename F>
Result<T> ask(CallThread& thread, const std::string& path, F call) {
  auto answer = std::make_shared<std::optional<Result<T>>>();
  EVALCAR_RETURN_IF_ERROR(
      thread.run(path, [answer, call = std::move(call)] { answer->emplace(call()); }));
  return std::move(**answer);
}

/// A file whose reads are made by the thread, and which is closed there.
class TimedReadable final : public ReadableFile {
 public:
  TimedReadable(std::shared_ptr<CallThread> thread, std::unique_ptr<ReadableFile> file,
                std::string path)
      : thread_(std::move(thread)), file_(std::move(file)), path_(std::move(path)) {}
  ~TimedReadable() override {
    thread_->run_later([file = std::move(file_)]() mutable { file.reset(); });
  }

  Result<std::size_t> read_at(std::uint64_t offset, std::span<std::byte> out) const override {
    std::size_t done = 0;
    while (done < out.size()) {
      const std::size_t size = std::min(kPiece, out.size() - done);
      // Read into memory of its own: a call that was given up must not write into the caller's.
      auto piece = std::make_shared<std::vector<std::byte>>(size);
      EVALCAR_ASSIGN_OR_RETURN(
          const std::size_t n,
          ask<std::size_t>(*thread_, path_, [file = file_, piece, at = offset + done] {
            return file->read_at(at, *piece);
          }));
      std::copy_n(piece->begin(), n, out.begin() + static_cast<std::ptrdiff_t>(done));
      done += n;
      if (n < size) break;
    }
    return done;
  }
  Result<FileInfo> info() const override {
    return ask<FileInfo>(*thread_, path_, [file = file_] { return file->info(); });
  }

 private:
  std::shared_ptr<CallThread> thread_;
  std::shared_ptr<ReadableFile> file_;
  std::string path_;
};

/// A file that is open by another name, which goes with it.
class LinkedReadable final : public ReadableFile {
 public:
  LinkedReadable(FileSystem& files, std::unique_ptr<ReadableFile> file, std::string link)
      : files_(files), file_(std::move(file)), link_(std::move(link)) {}
  ~LinkedReadable() override {
    file_.reset();
    (void)files_.remove_file(link_);  // else when the agent starts, as what a kill leaves
  }
  Result<std::size_t> read_at(std::uint64_t offset, std::span<std::byte> out) const override {
    return file_->read_at(offset, out);
  }
  Result<FileInfo> info() const override { return file_->info(); }

 private:
  FileSystem& files_;
  std::unique_ptr<ReadableFile> file_;
  std::string link_;
};

Result<std::unique_ptr<ReadableFile>> open_through(FileSystem& files, const std::string& path,
                                                   const std::string& link) {
  if (link.empty() || !files.hard_link(path, link).has_value()) return files.open_readable(path);
  auto file = files.open_readable(link);
  if (!file.has_value()) {
    (void)files.remove_file(link);
    return files.open_readable(path);  // what is wrong is told of its own name
  }
  return std::unique_ptr<ReadableFile>(
      std::make_unique<LinkedReadable>(files, std::move(file).value(), link));
}

class TimedWritable final : public WritableFile {
 public:
  TimedWritable(std::shared_ptr<CallThread> thread, std::unique_ptr<WritableFile> file,
                std::string path)
      : thread_(std::move(thread)), file_(std::move(file)), path_(std::move(path)) {}
  ~TimedWritable() override {
    thread_->run_later([file = std::move(file_)]() mutable { file.reset(); });
  }

  Status append(std::span<const std::byte> bytes) override {
    while (!bytes.empty()) {
      const auto piece = bytes.first(std::min(kPiece, bytes.size()));
      auto copy = std::make_shared<std::vector<std::byte>>(piece.begin(), piece.end());
      EVALCAR_RETURN_IF_ERROR(
          ask<void>(*thread_, path_, [file = file_, copy] { return file->append(*copy); }));
      bytes = bytes.subspan(piece.size());
    }
    return {};
  }
  Status sync() override {
    return ask<void>(*thread_, path_, [file = file_] { return file->sync(); });
  }
  Status close() override {
    return ask<void>(*thread_, path_, [file = file_] { return file->close(); });
  }

 private:
  std::shared_ptr<CallThread> thread_;
  std::shared_ptr<WritableFile> file_;
  std::string path_;
};

}  // namespace

struct TimedFileSystem::Tree {
  Tree(std::string where, CallThread::Patience patience)
      : path(std::move(where)), thread(std::make_shared<CallThread>(std::move(patience))) {}
  const std::string path;
  const std::shared_ptr<CallThread> thread;
  std::atomic<bool> slow = true;  ///< until its file system said that it is local
  Guarded<std::string> links;     ///< where reading makes its links; "": nowhere

  /// A name for reading that file; "": its own.
  std::string link_for(const std::string& file) const {
    static std::atomic<std::uint64_t> counter{1'000'000'000};  // apart from that function's
    const std::string folder = links.with([](const std::string& where) { return where; });
    if (folder.empty() || is_below(file, folder)) return "";
    // As those of write_file_atomically, so that one that a kill leaves is removed like those.
    return join_path(folder, "." + base_name(file) + ".tmp." + std::to_string(::getpid()) + "." +
                                 std::to_string(counter.fetch_add(1)));
  }
};

TimedFileSystem::TimedFileSystem(FileSystem& below, CallThread::Patience patience)
    : below_(below), patience_(std::move(patience)) {}

void TimedFileSystem::guard(const std::string& tree) {
  if (tree.empty()) return;
  const auto added = trees_.with([&](auto& trees) -> std::shared_ptr<Tree> {
    if (trees.contains(tree)) return nullptr;
    return trees[tree] = std::make_shared<Tree>(tree, patience_);
  });
  if (added != nullptr) look_at_kind(*added);
}

void TimedFileSystem::read_through_links(const std::string& tree, const std::string& folder) {
  const auto found = trees_.with([&](auto& trees) {
    const auto at = trees.find(tree);
    return at == trees.end() ? nullptr : at->second;
  });
  if (found != nullptr) found->links.with([&](std::string& where) { where = folder; });
}

std::shared_ptr<TimedFileSystem::Tree> TimedFileSystem::tree_of(const std::string& path) const {
  return trees_.with([&](const auto& trees) {
    std::shared_ptr<Tree> nearest;
    for (const auto& [root, tree] : trees) {  // a tree in another comes after it
      if (is_below(path, root)) nearest = tree;
    }
    return nearest;
  });
}

std::shared_ptr<CallThread> TimedFileSystem::slow_thread_of(const std::string& path) const {
  const auto tree = tree_of(path);
  return tree != nullptr && tree->slow ? tree->thread : nullptr;
}

void TimedFileSystem::look_at_kind(Tree& tree) const {
  const auto type = ask<std::uint64_t>(
      *tree.thread, tree.path, [&b = below_, path = tree.path] { return type_of_future(b, path); });
  if (type.has_value()) tree.slow = !file_system_kind(*type).local;
}

// Each call in turn: directly, or by the tree's thread, which gets copies of the arguments.

Result<std::unique_ptr<ReadableFile>> TimedFileSystem::open_readable(
    const std::string& path) const {
  const auto tree = tree_of(path);
  if (tree == nullptr || !tree->slow) return below_.open_readable(path);
  const auto thread = tree->thread;
  EVALCAR_ASSIGN_OR_RETURN(auto file,
                           ask<std::unique_ptr<ReadableFile>>(
                               *thread, path, [&b = below_, path, link = tree->link_for(path)] {
                                 return open_through(b, path, link);
                               }));
  return std::unique_ptr<ReadableFile>(
      std::make_unique<TimedReadable>(thread, std::move(file), path));
}

Result<std::unique_ptr<WritableFile>> TimedFileSystem::create(const std::string& path,
                                                              std::uint32_t mode) {
  const auto thread = slow_thread_of(path);
  if (thread == nullptr) return below_.create(path, mode);
  EVALCAR_ASSIGN_OR_RETURN(
      auto file, ask<std::unique_ptr<WritableFile>>(
                     *thread, path, [&b = below_, path, mode] { return b.create(path, mode); }));
  return std::unique_ptr<WritableFile>(
      std::make_unique<TimedWritable>(thread, std::move(file), path));
}

Result<std::unique_ptr<WritableFile>> TimedFileSystem::open_appendable(const std::string& path,
                                                                       std::uint32_t mode) {
  const auto thread = slow_thread_of(path);
  if (thread == nullptr) return below_.open_appendable(path, mode);
  EVALCAR_ASSIGN_OR_RETURN(
      auto file, ask<std::unique_ptr<WritableFile>>(*thread, path, [&b = below_, path, mode] {
        return b.open_appendable(path, mode);
      }));
  return std::unique_ptr<WritableFile>(
      std::make_unique<TimedWritable>(thread, std::move(file), path));
}

Result<std::vector<DirectoryEntry>> TimedFileSystem::list(const std::string& path,
                                                          std::size_t limit) const {
  if (const auto tree = tree_of(path); tree != nullptr && tree->path == path) look_at_kind(*tree);
  const auto thread = slow_thread_of(path);
  if (thread == nullptr) return below_.list(path, limit);
  return ask<std::vector<DirectoryEntry>>(
      *thread, path, [&b = below_, path, limit] { return b.list(path, limit); });
}

Result<FileInfo> TimedFileSystem::info(const std::string& path) const {
  const auto thread = slow_thread_of(path);
  if (thread == nullptr) return below_.info(path);
  return ask<FileInfo>(*thread, path, [&b = below_, path] { return b.info(path); });
}

Result<FileInfo> TimedFileSystem::info_followed(const std::string& path) const {
  const auto thread = slow_thread_of(path);
  if (thread == nullptr) return below_.info_followed(path);
  return ask<FileInfo>(*thread, path, [&b = below_, path] { return b.info_followed(path); });
}

Result<FileInfo> TimedFileSystem::info_now(const std::string& path) const {
  const auto thread = slow_thread_of(path);
  if (thread == nullptr) return below_.info_followed(path);  // local: what is remembered is true
  return ask<FileInfo>(*thread, path, [&b = below_, path] { return b.info_now(path); });
}

Result<std::string> TimedFileSystem::read_link(const std::string& path) const {
  const auto thread = slow_thread_of(path);
  if (thread == nullptr) return below_.read_link(path);
  return ask<std::string>(*thread, path, [&b = below_, path] { return b.read_link(path); });
}

Result<std::string> TimedFileSystem::real_path(const std::string& path) const {
  const auto thread = slow_thread_of(path);
  if (thread == nullptr) return below_.real_path(path);
  return ask<std::string>(*thread, path, [&b = below_, path] { return b.real_path(path); });
}

void TimedFileSystem::leave_to_owner(const std::string& directory) {
  of_others_.with([&directory](std::set<std::string>& all) { all.insert(directory); });
}

bool TimedFileSystem::is_left_to_owner(const std::string& directory) const {
  return of_others_.with(
      [&directory](const std::set<std::string>& all) { return all.contains(directory); });
}

Status TimedFileSystem::make_directory(const std::string& path, std::uint32_t mode) {
  return perform(path, [&b = below_, path, mode] { return b.make_directory(path, mode); });
}

Status TimedFileSystem::rename(const std::string& from, const std::string& to) {
  return perform(to, [&b = below_, from, to] { return b.rename(from, to); });
}

Status TimedFileSystem::remove_file(const std::string& path) {
  return perform(path, [&b = below_, path] { return b.remove_file(path); });
}

Status TimedFileSystem::remove_directory(const std::string& path) {
  return perform(path, [&b = below_, path] { return b.remove_directory(path); });
}

Status TimedFileSystem::hard_link(const std::string& from, const std::string& to) {
  return perform(to, [&b = below_, from, to] { return b.hard_link(from, to); });
}

Status TimedFileSystem::clone_file(const std::string& from, const std::string& to) {
  return perform(to, [&b = below_, from, to] { return b.clone_file(from, to); });
}

Status TimedFileSystem::symbolic_link(const std::string& target, const std::string& path) {
  return perform(path, [&b = below_, target, path] { return b.symbolic_link(target, path); });
}

Status TimedFileSystem::set_mtime(const std::string& path, std::int64_t mtime_ns) {
  return perform(path, [&b = below_, path, mtime_ns] { return b.set_mtime(path, mtime_ns); });
}

Status TimedFileSystem::truncate(const std::string& path, std::uint64_t size_bytes) {
  return perform(path, [&b = below_, path, size_bytes] { return b.truncate(path, size_bytes); });
}

Status TimedFileSystem::sync_directory(const std::string& path) {
  return perform(path, [&b = below_, path] { return b.sync_directory(path); });
}

Result<std::uint64_t> TimedFileSystem::free_bytes(const std::string& path) const {
  const auto thread = slow_thread_of(path);
  if (thread == nullptr) return below_.free_bytes(path);
  return ask<std::uint64_t>(*thread, path, [&b = below_, path] { return b.free_bytes(path); });
}

Result<std::uint64_t> TimedFileSystem::file_system_type(const std::string& path) const {
  const auto thread = slow_thread_of(path);
  if (thread == nullptr) return below_.file_system_type(path);
  return ask<std::uint64_t>(*thread, path,
                            [&b = below_, path] { return b.file_system_type(path); });
}

Status TimedFileSystem::perform(const std::string& path, std::function<Status()> call) const {
  const auto thread = slow_thread_of(path);
  if (thread == nullptr) return below_.perform(path, std::move(call));
  return ask<void>(*thread, path,
                   [&b = below_, path, call = std::move(call)] { return b.perform(path, call); });
}

void TimedFileSystem::perform_later(const std::string& path, std::function<void()> call) const {
  const auto thread = slow_thread_of(path);
  if (thread == nullptr) return below_.perform_later(path, std::move(call));
  thread->run_later(std::move(call));
}

Status TimedFileSystem::answers(const std::string& path) const {
  const auto thread = slow_thread_of(path);
  return thread == nullptr ? Status() : thread->answers(path);
}

}  // namespace evalcar
