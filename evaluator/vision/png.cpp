// PNG pixels: inflate, undo the filters, put rows or Adam7 passes in place, each pixel converted to
// RGB as Pillow's convert("RGB") converts the mode it would have chosen (alpha dropped, 16-bit grey
// clipped at 255, other 16-bit samples cut to their high byte). zlib is driven row by row as Pillow
// drives it, so what a cut or broken stream still gives are the pixels that Pillow gets of it; the
// others stay black, or the palette's first colour.
#include <array>
#include <cstdlib>
#include <cstring>
#include <vector>

#include <zlib.h>

#include "evaluator/vision/png_chunks.h"

namespace evalcar::vision {
namespace {

struct Adam7 {
  std::size_t offset, first_column, first_row, column_step, row_step;
};
constexpr std::array<Adam7, 7> kPasses = {{{7, 0, 0, 8, 8},
                                           {3, 4, 0, 8, 8},
                                           {3, 0, 4, 4, 8},
                                           {1, 2, 0, 4, 4},
                                           {1, 0, 2, 2, 4},
                                           {0, 1, 0, 2, 2},
                                           {0, 0, 1, 1, 2}}};

std::size_t bits_per_pixel(const PngHeader& header) {
  constexpr std::size_t kSamples[] = {1, 0, 3, 1, 2, 0, 4};
  return kSamples[header.color_type] * static_cast<std::size_t>(header.bit_depth);
}

// `count` pixels of a row without its filter byte, written `step` bytes apart.
void convert_row(const PngHeader& header, const std::uint8_t* in, std::size_t count,
                 std::uint8_t* out, std::size_t step) {
  const auto grey = [&](std::uint8_t value) { out[0] = out[1] = out[2] = value; };
  const auto small_sample = [&](std::size_t i) -> std::uint8_t {
    const auto depth = static_cast<std::size_t>(header.bit_depth);
    const std::size_t bit = i * depth;
    return static_cast<std::uint8_t>((in[bit / 8] >> (8 - depth - bit % 8)) & ((1 << depth) - 1));
  };
  const auto palette_entry = [&](std::uint8_t index) {
    std::memcpy(out, header.palette.data() + std::size_t{index} * 3, 3);
  };
  const bool wide = header.bit_depth == 16;
  switch (header.color_type) {
    case 0:
      if (wide) {
        for (std::size_t i = 0; i < count; ++i, in += 2, out += step)
          grey(in[0] == 0 ? in[1] : 255);
      } else if (header.bit_depth == 8) {
        for (std::size_t i = 0; i < count; ++i, out += step) grey(in[i]);
      } else {
        const int scale = 255 / ((1 << header.bit_depth) - 1);
        for (std::size_t i = 0; i < count; ++i, out += step)
          grey(static_cast<std::uint8_t>(small_sample(i) * scale));
      }
      return;
    case 3:
      for (std::size_t i = 0; i < count; ++i, out += step)
        palette_entry(header.bit_depth == 8 ? in[i] : small_sample(i));
      return;
    case 4:
      for (std::size_t i = 0; i < count; ++i, out += step) grey(in[i * (wide ? 4 : 2)]);
      return;
    default: {
      const std::size_t sample = wide ? 2 : 1;
      const std::size_t pixel = (header.color_type == 2 ? 3 : 4) * sample;
      if (pixel == 3 && step == 3) {
        std::memcpy(out, in, count * 3);
        return;
      }
      for (std::size_t i = 0; i < count; ++i, in += pixel, out += step) {
        out[0] = in[0];
        out[1] = in[sample];
        out[2] = in[2 * sample];
      }
    }
  }
}

std::uint8_t paeth(int left, int up, int corner) {
  const int to_left = std::abs(up - corner);
  const int to_up = std::abs(left - corner);
  const int to_corner = std::abs(left + up - 2 * corner);
  if (to_left <= to_up && to_left <= to_corner) return static_cast<std::uint8_t>(left);
  return static_cast<std::uint8_t>(to_up <= to_corner ? up : corner);
}

// Undoes the filter of `row` (without its filter byte). False for an unknown filter.
bool unfilter(int filter, std::uint8_t* row, const std::uint8_t* above, std::size_t size,
              std::size_t pixel) {
  const auto add = [](std::uint8_t& target, int value) {
    target = static_cast<std::uint8_t>(target + value);
  };
  switch (filter) {
    case 0:
      return true;
    case 1:
      for (std::size_t i = pixel; i < size; ++i) add(row[i], row[i - pixel]);
      return true;
    case 2:
      for (std::size_t i = 0; i < size; ++i) add(row[i], above[i]);
      return true;
    case 3:
      for (std::size_t i = 0; i < std::min(pixel, size); ++i) add(row[i], above[i] / 2);
      for (std::size_t i = pixel; i < size; ++i) add(row[i], (row[i - pixel] + above[i]) / 2);
      return true;
    case 4:
      for (std::size_t i = 0; i < std::min(pixel, size); ++i) add(row[i], above[i]);
      for (std::size_t i = pixel; i < size; ++i)
        add(row[i], paeth(row[i - pixel], above[i], above[i - pixel]));
      return true;
    default:
      return false;
  }
}

class PixelReader {
 public:
  PixelReader(const PngHeader& header, Image& image)
      : header_(header), image_(image), bits_(bits_per_pixel(header)) {
    const std::size_t longest = (bits_ * header.frame_width + 7) / 8;
    row_.resize(longest + 1);
    above_.resize(longest + 1);
    start_pass(0);
  }
  PixelReader(const PixelReader&) = delete;
  PixelReader& operator=(const PixelReader&) = delete;
  ~PixelReader() { inflateEnd(&stream_); }

  bool init() { return inflateInit(&stream_) == Z_OK; }

  enum class Step { kMore, kDone, kBroken };
  Step feed(Bytes data) {
    // zlib's counters are 32 bits wide; a chunk's length is too.
    stream_.next_in = const_cast<Bytef*>(reinterpret_cast<const Bytef*>(data.data()));
    stream_.avail_in = static_cast<uInt>(data.size());
    while (stream_.avail_in > 0) {
      stream_.next_out = row_.data() + filled_;
      stream_.avail_out = static_cast<uInt>(row_size_ + 1 - filled_);
      const int code = inflate(&stream_, Z_NO_FLUSH);
      if (code < 0) return Step::kBroken;
      filled_ = row_size_ + 1 - stream_.avail_out;
      if (filled_ < row_size_ + 1) return Step::kMore;
      if (!unfilter(row_[0], row_.data() + 1, above_.data() + 1, row_size_, (bits_ + 7) / 8))
        return Step::kBroken;
      store_row();
      filled_ = 0;
      if (y_ >= header_.frame_height) return Step::kDone;
      if (code == Z_STREAM_END) return Step::kBroken;  // before the last row
      row_.swap(above_);
    }
    return Step::kMore;
  }

 private:
  void start_pass(std::size_t pass) {
    pass_ = pass;
    if (!header_.interlaced) {
      row_size_ = row_.size() - 1;
      return;
    }
    const Adam7& shape = kPasses[pass];
    y_ = shape.first_row;
    row_size_ = (pass_width() * bits_ + 7) / 8;
  }
  std::size_t pass_width() const {
    return (header_.frame_width + kPasses[pass_].offset) / kPasses[pass_].column_step;
  }
  std::uint8_t* pixel_at(std::size_t x, std::size_t y) const {
    return image_.rgb.data() + (y * static_cast<std::size_t>(image_.width) + x) * 3;
  }

  void store_row() {
    if (!header_.interlaced) {
      convert_row(header_, row_.data() + 1, header_.frame_width,
                  pixel_at(header_.frame_x, header_.frame_y + y_), 3);
      ++y_;
      return;
    }
    const Adam7& shape = kPasses[pass_];
    convert_row(header_, row_.data() + 1, pass_width(), pixel_at(shape.first_column, y_),
                shape.column_step * 3);
    y_ += shape.row_step;
    while (y_ >= header_.frame_height || row_size_ == 0) {
      if (pass_ + 1 == kPasses.size()) {
        y_ = header_.frame_height;
        return;
      }
      start_pass(pass_ + 1);
      // The row above a pass's first row is black; this buffer becomes it.
      std::fill(row_.begin(), row_.end(), std::uint8_t{0});
    }
  }

  const PngHeader& header_;
  Image& image_;
  std::size_t bits_;
  z_stream stream_{};
  std::vector<std::uint8_t> row_;    // filter byte, then the row being filled
  std::vector<std::uint8_t> above_;  // the same of the row before
  std::size_t row_size_ = 0;
  std::size_t filled_ = 0;
  std::size_t pass_ = 0;
  std::size_t y_ = 0;
};

Status read_pixels(PngChunks& chunks, const PngHeader& header, Image& image) {
  if (header.color_type == 3) {
    for (std::size_t i = 0; i < image.rgb.size(); ++i) image.rgb[i] = header.palette[i % 3];
  }
  PixelReader reader(header, image);
  if (!reader.init()) return make_error(ErrorCode::kUnavailable, "zlib cannot start");
  while (true) {
    EVALCAR_ASSIGN_OR_RETURN(const Bytes data, chunks.next_data());
    const auto step = data.empty() ? PixelReader::Step::kBroken : reader.feed(data);
    if (step == PixelReader::Step::kMore) continue;
    image.is_incomplete = step == PixelReader::Step::kBroken;
    return {};
  }
}

}  // namespace

Result<Decoded> decode_png(Bytes bytes, std::string_view name, const DecodeLimits& limits,
                           Want want) {
  PngChunks chunks(bytes, name);
  EVALCAR_ASSIGN_OR_RETURN(const PngHeader header, chunks.open());
  EVALCAR_RETURN_IF_ERROR(check_size(header.width, header.height, name, limits));
  if (std::uint64_t{header.frame_x} + header.frame_width > header.width ||
      std::uint64_t{header.frame_y} + header.frame_height > header.height)
    return damaged(name, "PNG", "a frame of the animation is outside the picture");
  Decoded decoded;
  decoded.size = {static_cast<int>(header.width), static_cast<int>(header.height)};
  if (want == Want::kPixels) {
    decoded.image.width = decoded.size.width;
    decoded.image.height = decoded.size.height;
    decoded.image.rgb.resize(std::size_t{header.width} * header.height * 3);
    EVALCAR_RETURN_IF_ERROR(read_pixels(chunks, header, decoded.image));
  } else {
    // Passes over the data as leniently as decoding does once it has the last row.
    for (auto data = chunks.next_data(); data && !data->empty();) data = chunks.next_data();
  }
  EVALCAR_RETURN_IF_ERROR(chunks.finish());
  decoded.is_cut_off = !chunks.has_end();
  decoded.metadata = chunks.take_metadata();
  return decoded;
}

}  // namespace evalcar::vision
