// How much of the preparing of pictures a device hides: `picture_queue_bench FILE.jpg [PAGES]`.
//
// The device is one that computes without the host, as a GPU does: it takes a page, and is busy for
// as long as one thread needs to prepare a page (measured first). In line, a page costs both;
// ahead, it costs the longer of the two. Runs alternate, and medians are compared; the pages'
// values are summed up and must be equal.
#include <algorithm>
#include <chrono>
#include <iostream>
#include <numeric>
#include <thread>

#include "evaluator/engine/picture_queue.h"
#include "evaluator/vision/image.h"
#include "store/base/file_system.h"

namespace {

using namespace evalcar;
using namespace evalcar::engine;
using Seconds = std::chrono::duration<double>;

constexpr int kRepeats = 5;

class Pages final : public ImageSource {
 public:
  Pages(std::string bytes, std::size_t count, vision::PreparedSize size)
      : bytes_(std::move(bytes)), count_(count), size_(size) {}
  std::size_t size() const override { return count_; }
  vision::PreparedSize size_of(std::size_t) const override { return size_; }
  Result<vision::PreparedImage> load(std::size_t) const override {
    EVALCAR_ASSIGN_OR_RETURN(
        const vision::Image image,
        vision::decode_image(std::as_bytes(std::span<const char>(bytes_)), "page"));
    return vision::prepare_image(image, {});
  }

 private:
  std::string bytes_;
  std::size_t count_;
  vision::PreparedSize size_;
};

struct Run {
  double seconds = 0;
  double sum = 0;
};

Run run(const Pages& pages, int threads, Seconds device) {
  std::vector<PicturePlace> order;
  for (std::size_t i = 0; i < pages.size(); ++i) order.push_back({0, i});
  const vision::ProcessorSettings processor;
  Run result;
  const auto start = std::chrono::steady_clock::now();
  PictureQueue queue(pages, processor, order, {.threads = threads});
  for (const PicturePlace& place : order) {
    const auto rows = queue.take(place, {});
    if (!rows.has_value()) return {};
    result.sum += std::accumulate(rows->values.get(), rows->values.get() + rows->elements, 0.0);
    std::this_thread::sleep_for(device);
  }
  result.seconds = Seconds(std::chrono::steady_clock::now() - start).count();
  return result;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::cerr << "usage: picture_queue_bench FILE [PAGES]\n";
    return 2;
  }
  const std::size_t count = argc > 2 ? std::stoul(argv[2]) : 12;
  auto bytes = read_file(RealFileSystem(), argv[1], std::size_t{1} << 30U);
  if (!bytes.has_value()) {
    std::cerr << bytes.error().message << "\n";
    return 1;
  }
  const auto image = vision::decode_image(std::as_bytes(std::span<const char>(*bytes)), argv[1]);
  if (!image.has_value()) {
    std::cerr << image.error().message << "\n";
    return 1;
  }
  const auto size = vision::prepared_size(image->height, image->width, {});
  if (!size.has_value()) {
    std::cerr << size.error().message << "\n";
    return 1;
  }
  const Pages pages(std::move(*bytes), count, *size);
  const Seconds device(run(pages, 0, Seconds(0)).seconds / static_cast<double>(count));
  std::cout << count << " pages of " << image->width << " x " << image->height << ", "
            << std::thread::hardware_concurrency() << " cores; a page takes the device "
            << device.count() * 1e3 << " ms\n";
  for (const int threads : {1, 2}) {
    std::vector<double> in_line, ahead;
    bool equal = true;
    for (int repeat = 0; repeat < kRepeats; ++repeat) {
      const Run one = run(pages, 0, device);
      const Run other = run(pages, threads, device);
      in_line.push_back(one.seconds);
      ahead.push_back(other.seconds);
      equal = equal && one.sum == other.sum && one.sum != 0;
    }
    std::cout << "  in line " << static_cast<double>(count) / median(in_line) << " pages/s, "
              << threads << " thread(s) ahead " << static_cast<double>(count) / median(ahead)
              << ": ratio " << median(in_line) / median(ahead) << "; values "
              << (equal ? "equal" : "DIFFER") << "\n";
    if (!equal) return 1;
  }
  return 0;
}
