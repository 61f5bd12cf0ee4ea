// The chunks of a PNG file, read in the order and with the checks of Pillow's PngImagePlugin where
// it is told to load truncated pictures: every chunk before the first IDAT, with its checksum if it
// must be there, the data, then the rest until IEND leniently. Internal to this room.
#pragma once

#include <algorithm>
#include <array>

#include "evaluator/vision/metadata.h"

namespace evalcar::vision {

struct PngHeader {
  std::uint32_t width = 0;
  std::uint32_t height = 0;
  int bit_depth = 0;   ///< 1, 2, 4, 8 or 16
  int color_type = 0;  ///< 0 grey, 2 RGB, 3 palette, 4 grey+alpha, 6 RGBA
  bool interlaced = false;
  /// Where the data goes: the whole picture, but for an animation whose first frame is smaller.
  std::uint32_t frame_x = 0, frame_y = 0, frame_width = 0, frame_height = 0;
  std::array<std::uint8_t, 256 * 3> palette{};  ///< missing entries are black
};

class PngChunks {
 public:
  PngChunks(Bytes bytes, std::string_view name) : bytes_(bytes), name_(name) {}

  /// Reads up to the first IDAT. kCorruption, or kUnsupported for an unknown pixel format.
  Result<PngHeader> open();
  /// The next run of compressed data; empty after the last IDAT.
  Result<Bytes> next_data();
  /// Reads what follows the data: text and EXIF may come there too.
  Status finish();

  /// After finish(): whether the file goes on to its end, or to an animation's next frame.
  bool has_end() const { return has_end_; }
  Metadata take_metadata() { return std::move(metadata_); }

 private:
  struct Chunk {
    std::string_view type;
    std::uint64_t length = 0;
  };

  Error damage(std::string_view what) const { return damaged(name_, "PNG", what); }
  std::uint64_t left() const { return bytes_.size() - at_; }
  void skip(std::uint64_t count) { at_ += static_cast<std::size_t>(std::min(count, left())); }
  Result<Chunk> read_chunk_header();
  Result<Bytes> read_content(const Chunk& chunk);
  Status check_crc(std::string_view type, Bytes content);
  Status handle(std::string_view type, Bytes content);
  Status read_header(Bytes content);
  Status read_palette(Bytes content);
  Status read_transparency(Bytes content);
  Status read_animation_control(Bytes content);
  Status read_frame_control(Bytes content);
  /// Whether it is whole.
  Result<bool> skip_frame_data(std::uint64_t length);
  Status read_color_profile(std::string_view content) const;
  Status read_text(std::string_view content);
  Status read_compressed_text(std::string_view content);
  Status read_international_text(std::string_view content);
  Status set_text(std::string_view key, std::string value, bool is_bytes);

  Bytes bytes_;
  std::string_view name_;
  std::size_t at_ = 8;
  std::uint64_t data_left_ = 0;  // of the IDAT chunk being read
  bool data_ended_ = false;
  bool has_end_ = false;
  PngHeader header_;
  bool has_mode_ = false;
  bool has_palette_ = false;
  bool one_transparent_entry_ = false;
  bool has_frame_box_ = false;
  std::optional<std::uint32_t> animation_frames_;
  std::optional<std::uint32_t> sequence_;
  std::uint64_t text_bytes_ = 0;
  bool exif_is_text_ = false;
  std::string xmp_property_;  // of the text "XML:com.adobe.xmp", which goes before `xmp`
  Metadata metadata_;
};

}  // namespace evalcar::vision
