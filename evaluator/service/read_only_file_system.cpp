#include "evaluator/service/read_only_file_system.h"

namespace evalcar::service {
namespace {

Error refused(const std::string& path) {
  return make_error(ErrorCode::kUnsupported, path + ": an evaluator writes nothing");
}

}  // namespace

Result<std::unique_ptr<WritableFile>> ReadOnlyFileSystem::create(const std::string& path,
                                                                 std::uint32_t) {
  return refused(path);
}
Result<std::unique_ptr<WritableFile>> ReadOnlyFileSystem::open_appendable(const std::string& path,
                                                                          std::uint32_t) {
  return refused(path);
}
Status ReadOnlyFileSystem::make_directory(const std::string& path, std::uint32_t) {
  return refused(path);
}
Status ReadOnlyFileSystem::rename(const std::string& from, const std::string&) {
  return refused(from);
}
Status ReadOnlyFileSystem::remove_file(const std::string& path) { return refused(path); }
Status ReadOnlyFileSystem::remove_directory(const std::string& path) { return refused(path); }
Status ReadOnlyFileSystem::hard_link(const std::string& from, const std::string&) {
  return refused(from);
}
Status ReadOnlyFileSystem::symbolic_link(const std::string&, const std::string& path) {
  return refused(path);
}
Status ReadOnlyFileSystem::set_mtime(const std::string& path, std::int64_t) {
  return refused(path);
}
Status ReadOnlyFileSystem::truncate(const std::string& path, std::uint64_t) {
  return refused(path);
}
Status ReadOnlyFileSystem::sync_directory(const std::string& path) { return refused(path); }

}  // namespace evalcar::service
