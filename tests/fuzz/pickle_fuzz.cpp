// A pickle: it is refused, or every node can be read.
#include <string>

#include "store/checkpoint/pickle.h"
#include "tests/fuzz/bytes_file.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace evalcar;
  const auto pickle = checkpoint::Pickle::parse(std::string(fuzz::as_text(data, size)), "input");
  if (pickle.has_value()) {
    const auto root = pickle.value().root();
    using enum checkpoint::PickleKind;
    switch (pickle.value().kind(root)) {
      case kText:
        (void)std::string(pickle.value().text(root));
        break;
      case kTuple:
      case kList:
      case kDict:
        for (const auto item : pickle.value().items(root)) (void)pickle.value().kind(item);
        break;
      default:
        break;
    }
  }
  return 0;
}
