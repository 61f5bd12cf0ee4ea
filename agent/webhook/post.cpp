#include "agent/webhook/post.h"

// The checks of argument types are macros around the functions, which are pointers here.
#define CURL_DISABLE_TYPECHECK
#include <curl/curl.h>
#include <dlfcn.h>
#include <sys/socket.h>

#include <array>
#include <cstddef>
#include <cstdlib>

namespace evalcar::webhook {
namespace {

constexpr long kConnectSeconds = 10;
constexpr long kTotalSeconds = 30;
constexpr std::size_t kMostAnswerBytes = std::size_t{64} * 1024;

/// The functions of libcurl that are used.
struct Library {
  decltype(&::curl_global_init) global_init = nullptr;
  decltype(&::curl_easy_init) easy_init = nullptr;
  decltype(&::curl_easy_setopt) easy_setopt = nullptr;
  decltype(&::curl_easy_perform) easy_perform = nullptr;
  decltype(&::curl_easy_getinfo) easy_getinfo = nullptr;
  decltype(&::curl_easy_cleanup) easy_cleanup = nullptr;
  decltype(&::curl_easy_strerror) easy_strerror = nullptr;
  decltype(&::curl_slist_append) slist_append = nullptr;
  decltype(&::curl_slist_free_all) slist_free_all = nullptr;
};

template <typename Function>
bool find(void* handle, const char* name, Function& function) {
  function = reinterpret_cast<Function>(::dlsym(handle, name));
  return function != nullptr;
}

/// Loaded once and never unloaded: libcurl's TLS library registers handlers for the process's end.
Result<Library> load_library() {
  void* const handle = ::dlopen("libcurl.so.4", RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    return make_error(ErrorCode::kUnsupported,
                      std::string("publish.webhook_url needs libcurl.so.4 (Debian's package "
                                  "libcurl4): ") +
                          ::dlerror());
  }
  Library library;
  const bool all = find(handle, "curl_global_init", library.global_init) &&
                   find(handle, "curl_easy_init", library.easy_init) &&
                   find(handle, "curl_easy_setopt", library.easy_setopt) &&
                   find(handle, "curl_easy_perform", library.easy_perform) &&
                   find(handle, "curl_easy_getinfo", library.easy_getinfo) &&
                   find(handle, "curl_easy_cleanup", library.easy_cleanup) &&
                   find(handle, "curl_easy_strerror", library.easy_strerror) &&
                   find(handle, "curl_slist_append", library.slist_append) &&
                   find(handle, "curl_slist_free_all", library.slist_free_all);
  if (!all || library.global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK) {
    return make_error(ErrorCode::kUnsupported, "libcurl.so.4 does not work here");
  }
  return library;
}

/// Counts what comes, fields and body, and keeps nothing of it; more than the limit ends the
/// transfer.
std::size_t take_answer(char* /*bytes*/, std::size_t size, std::size_t count, void* seen) {
  auto& total = *static_cast<std::size_t*>(seen);
  total += size * count;
  return total <= kMostAnswerBytes ? size * count : 0;
}

int ask_stop(void* stop, curl_off_t /*down*/, curl_off_t /*of*/, curl_off_t /*up*/,
             curl_off_t /*of*/) {
  const auto& function = *static_cast<const std::function<bool()>*>(stop);
  return function && function() ? 1 : 0;
}

/// No child of ours inherits the connection.
curl_socket_t open_socket(void* /*data*/, curlsocktype /*purpose*/, curl_sockaddr* address) {
  return ::socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
}

class CurlPoster final : public Poster {
 public:
  explicit CurlPoster(const Library& library) : library_(library) {}

  Result<Answer> post(const std::string& url,
                      const std::vector<std::pair<std::string, std::string>>& headers,
                      const std::string& body, const std::function<bool()>& stop) override {
    CURL* const handle = library_.easy_init();
    if (handle == nullptr) return make_error(ErrorCode::kUnavailable, "libcurl gives no handle");
    curl_slist* list = nullptr;
    for (const auto& [name, value] : headers) {
      list = library_.slist_append(list, (name + ": " + value).c_str());
    }
    list = library_.slist_append(list, "Expect:");  // no waiting for a "100 Continue"
    Result<Answer> answer = perform(handle, list, url, body, stop);
    library_.slist_free_all(list);
    library_.easy_cleanup(handle);
    return answer;
  }

 private:
  Result<Answer> perform(CURL* handle, curl_slist* headers, const std::string& url,
                         const std::string& body, const std::function<bool()>& stop) const {
    std::array<char, CURL_ERROR_SIZE> words{};
    std::size_t seen = 0;
    const auto& set = library_.easy_setopt;
    set(handle, CURLOPT_URL, url.c_str());
    set(handle, CURLOPT_PROTOCOLS_STR, "http,https");
    set(handle, CURLOPT_FOLLOWLOCATION, 0L);
    set(handle, CURLOPT_POST, 1L);
    set(handle, CURLOPT_POSTFIELDS, body.c_str());
    set(handle, CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(body.size()));
    set(handle, CURLOPT_HTTPHEADER, headers);
    set(handle, CURLOPT_CONNECTTIMEOUT, kConnectSeconds);
    set(handle, CURLOPT_TIMEOUT, kTotalSeconds);
    set(handle, CURLOPT_NOSIGNAL, 1L);
    set(handle, CURLOPT_QUICK_EXIT, 1L);  // a name service that hangs is not waited for
    set(handle, CURLOPT_ERRORBUFFER, words.data());
    set(handle, CURLOPT_WRITEFUNCTION, &take_answer);
    set(handle, CURLOPT_WRITEDATA, &seen);
    set(handle, CURLOPT_HEADERFUNCTION, &take_answer);
    set(handle, CURLOPT_HEADERDATA, &seen);
    set(handle, CURLOPT_NOPROGRESS, 0L);
    set(handle, CURLOPT_XFERINFOFUNCTION, &ask_stop);
    set(handle, CURLOPT_XFERINFODATA, &stop);
    set(handle, CURLOPT_OPENSOCKETFUNCTION, &open_socket);
    // libcurl itself knows only the system's bundle, unlike its own program and OpenSSL's others.
    if (const char* bundle = std::getenv("SSL_CERT_FILE"); bundle != nullptr && *bundle != '\0') {
      set(handle, CURLOPT_CAINFO, bundle);
    }
    const CURLcode code = library_.easy_perform(handle);
    long status = 0;
    library_.easy_getinfo(handle, CURLINFO_RESPONSE_CODE, &status);
    if (code == CURLE_ABORTED_BY_CALLBACK) {
      return make_error(ErrorCode::kCancelled, "stopped while posting");
    }
    // Of an answer that is too long, all that matters is there.
    if (code != CURLE_OK && !(code == CURLE_WRITE_ERROR && status >= 200)) {
      return make_error(ErrorCode::kUnavailable,
                        words[0] != '\0' ? words.data() : library_.easy_strerror(code));
    }
    Answer answer;
    answer.status = static_cast<int>(status);
    curl_off_t wait = 0;
    library_.easy_getinfo(handle, CURLINFO_RETRY_AFTER, &wait);
    if (wait > 0) answer.retry_after_s = static_cast<double>(wait);
    const char* location = nullptr;
    library_.easy_getinfo(handle, CURLINFO_REDIRECT_URL, &location);
    if (location != nullptr) answer.location = location;
    return answer;
  }

  const Library& library_;
};

}  // namespace

Result<std::unique_ptr<Poster>> make_poster() {
  static const Result<Library> kLibrary = load_library();
  if (!kLibrary.has_value()) return kLibrary.error();
  return std::unique_ptr<Poster>(std::make_unique<CurlPoster>(kLibrary.value()));
}

}  // namespace evalcar::webhook
