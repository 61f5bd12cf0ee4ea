#include "evaluator/vision/png_chunks.h"

#include <utility>

#include <zlib.h>

namespace evalcar::vision {
namespace {

// Pillow's MAX_TEXT_CHUNK and MAX_TEXT_MEMORY.
constexpr std::size_t kMaxInflatedText = 1 << 20;
constexpr std::uint64_t kMaxTextBytes = 64ULL << 20;

// Any other name ends what Pillow reads.
bool is_ascii(std::string_view type) {
  return std::all_of(type.begin(), type.end(),
                     [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

bool is_known_format(int depth, int color) {
  switch (color) {
    case 0:
      return depth == 1 || depth == 2 || depth == 4 || depth == 8 || depth == 16;
    case 3:
      return depth == 1 || depth == 2 || depth == 4 || depth == 8;
    case 2:
    case 4:
    case 6:
      return depth == 8 || depth == 16;
    default:
      return false;
  }
}

enum class Inflated { kWhole, kBroken, kTooLarge };

// The text of a compressed chunk: what there is of a truncated stream, nothing of a broken one.
Inflated inflate_text(std::string_view compressed, std::string& out) {
  z_stream stream{};
  if (inflateInit(&stream) != Z_OK) return Inflated::kBroken;
  std::string input(compressed);
  stream.next_in = reinterpret_cast<Bytef*>(input.data());
  stream.avail_in = static_cast<uInt>(input.size());
  out.resize(std::min(kMaxInflatedText, compressed.size() * 1040 + 64));
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  const int code = inflate(&stream, Z_SYNC_FLUSH);
  const bool more = stream.avail_in > 0 && code != Z_STREAM_END;
  out.resize(out.size() - stream.avail_out);
  inflateEnd(&stream);
  if (code != Z_OK && code != Z_STREAM_END && code != Z_BUF_ERROR) {
    out.clear();
    return Inflated::kBroken;
  }
  return more ? Inflated::kTooLarge : Inflated::kWhole;
}

struct Split {
  std::string_view head;
  std::string_view tail;
  bool found = false;
};
Split split_at_zero(std::string_view text) {
  const std::size_t at = text.find('\0');
  if (at == std::string_view::npos) return {text, {}, false};
  return {text.substr(0, at), text.substr(at + 1), true};
}

}  // namespace

Result<PngHeader> PngChunks::open() {
  while (true) {
    EVALCAR_ASSIGN_OR_RETURN(const Chunk chunk, read_chunk_header());
    if (chunk.type == "IDAT") {
      data_left_ = chunk.length;
      break;
    }
    if (chunk.type == "IEND" || chunk.type == "fdAT")
      return damage("there is no IDAT chunk before " + std::string(chunk.type));
    if (!is_ascii(chunk.type)) return damage("a chunk has no valid type");
    EVALCAR_ASSIGN_OR_RETURN(const Bytes content, read_content(chunk));
    EVALCAR_RETURN_IF_ERROR(handle(chunk.type, content));
    EVALCAR_RETURN_IF_ERROR(check_crc(chunk.type, content));
  }
  if (!has_mode_) {
    return make_error(ErrorCode::kUnsupported,
                      std::string(name_) + ": PNG: no known pixel format (bit depth " +
                          std::to_string(header_.bit_depth) + ", colour type " +
                          std::to_string(header_.color_type) + ")");
  }
  if (!has_frame_box_) {
    header_.frame_width = header_.width;
    header_.frame_height = header_.height;
  }
  return header_;
}

Result<Bytes> PngChunks::next_data() {
  while (data_left_ == 0) {
    if (data_ended_) return Bytes{};
    skip(4);  // the checksum of the data is not looked at, as in Pillow
    const std::size_t start = at_;
    const auto chunk = read_chunk_header();
    if (!chunk || (chunk->type != "IDAT" && chunk->type != "DDAT")) {
      at_ = start - std::min<std::size_t>(start, 4);  // finish() skips the checksum again
      data_ended_ = true;
      if (chunk && chunk->type == "fdAT") return damage("fdAT follows IDAT without fcTL");
      return Bytes{};
    }
    data_left_ = chunk->length;
  }
  const std::uint64_t size = std::min(data_left_, left());
  const Bytes data = bytes_.subspan(at_, static_cast<std::size_t>(size));
  skip(size);
  data_left_ -= size;
  if (size == 0) data_ended_ = true;
  return data;
}

Status PngChunks::finish() {
  skip(data_left_);
  const bool animated = animation_frames_ && *animation_frames_ + (has_frame_box_ ? 0 : 1) > 1;
  while (true) {
    skip(4);
    const auto chunk = read_chunk_header();
    if (!chunk || !is_ascii(chunk->type)) break;
    has_end_ = chunk->type == "IEND" || (chunk->type == "fcTL" && animated);
    if (has_end_) break;
    // Pillow forgives that pixels are cut off, nothing else.
    if (chunk->type == "fdAT") {
      EVALCAR_ASSIGN_OR_RETURN(const bool whole, skip_frame_data(chunk->length));
      if (!whole) break;
      continue;
    }
    if (chunk->type == "IDAT" && chunk->length > left()) break;
    EVALCAR_ASSIGN_OR_RETURN(const Bytes content, read_content(*chunk));
    EVALCAR_RETURN_IF_ERROR(handle(chunk->type, content));
  }
  if (header_.color_type == 3 && !has_palette_ && one_transparent_entry_)
    return damage("it has a transparent colour but no palette");
  if (metadata_.exif && exif_is_text_) return damage("its EXIF block is a compressed text");
  if (!xmp_property_.empty()) metadata_.xmp = xmp_property_;
  return {};
}

Result<PngChunks::Chunk> PngChunks::read_chunk_header() {
  if (left() < 4) return damage("the file is truncated");
  Chunk chunk;
  chunk.length = big_endian_32(bytes_, at_);
  skip(4);
  chunk.type =
      text_of(bytes_.subspan(at_, static_cast<std::size_t>(std::min<std::uint64_t>(4, left()))));
  skip(4);
  return chunk;
}

Result<Bytes> PngChunks::read_content(const Chunk& chunk) {
  if (chunk.length > left()) {
    return damage("the file is truncated in a chunk " + std::string(chunk.type) + " of " +
                  std::to_string(chunk.length) + " bytes");
  }
  const Bytes content = bytes_.subspan(at_, static_cast<std::size_t>(chunk.length));
  skip(chunk.length);
  return content;
}

Status PngChunks::check_crc(std::string_view type, Bytes content) {
  if (type.empty()) return damage("the file is truncated");
  if ((static_cast<unsigned char>(type[0]) & 0x20U) != 0) {  // of what need not be there
    skip(4);
    return {};
  }
  if (left() < 4) return damage("the file is truncated in a checksum");
  const auto bytes_of = [](const void* data) { return static_cast<const Bytef*>(data); };
  uLong crc = crc32(0, bytes_of(type.data()), static_cast<uInt>(type.size()));
  if (!content.empty())
    crc = crc32(crc, bytes_of(content.data()), static_cast<uInt>(content.size()));
  if (crc != big_endian_32(bytes_, at_))
    return damage("the checksum of a chunk " + std::string(type) + " is wrong");
  skip(4);
  return {};
}

Status PngChunks::handle(std::string_view type, Bytes content) {
  struct Least {
    std::string_view type;
    std::size_t bytes;
  };
  constexpr Least kLeast[] = {{"IHDR", 13}, {"gAMA", 4}, {"cHRM", 32}, {"sRGB", 1},
                              {"pHYs", 9},  {"acTL", 8}, {"fcTL", 26}};
  for (const Least& least : kLeast) {
    if (type == least.type && content.size() < least.bytes) return {};
  }
  if (type == "IHDR") return read_header(content);
  if (type == "PLTE") return read_palette(content);
  if (type == "tRNS") return read_transparency(content);
  if (type == "acTL") return read_animation_control(content);
  if (type == "fcTL") return read_frame_control(content);
  if (type == "iCCP") return read_color_profile(text_of(content));
  if (type == "tEXt") return read_text(text_of(content));
  if (type == "zTXt") return read_compressed_text(text_of(content));
  if (type == "iTXt") return read_international_text(text_of(content));
  if (type == "eXIf") {
    metadata_.exif = std::string("Exif\0\0", 6).append(text_of(content));
    exif_is_text_ = false;
  }
  return {};
}

Status PngChunks::read_header(Bytes content) {
  header_.width = big_endian_32(content, 0);
  header_.height = big_endian_32(content, 4);
  header_.bit_depth = byte_at(content, 8);
  header_.color_type = byte_at(content, 9);
  has_mode_ = is_known_format(header_.bit_depth, header_.color_type);
  header_.interlaced = header_.interlaced || byte_at(content, 12) != 0;
  if (byte_at(content, 11) != 0) return damage("the filter method is unknown");
  return {};
}

Status PngChunks::read_palette(Bytes content) {
  if (header_.color_type != 3 || !has_mode_) return {};
  const std::size_t entries = content.size() / 3;
  if (entries > 256) return damage("the palette has " + std::to_string(entries) + " colours");
  has_palette_ = true;
  header_.palette.fill(0);
  for (std::size_t i = 0; i < entries * 3; ++i) header_.palette[i] = byte_at(content, i);
  return {};
}

// Transparency does not change the colours; only its form is checked.
Status PngChunks::read_transparency(Bytes content) {
  if (!has_mode_) return {};
  if (header_.color_type == 3) {
    std::size_t zeros = 0;
    std::size_t others = 0;
    for (std::size_t i = 0; i < content.size(); ++i) {
      const int alpha = byte_at(content, i);
      zeros += alpha == 0 ? 1U : 0U;
      others += alpha != 0 && alpha != 255 ? 1U : 0U;
    }
    one_transparent_entry_ = zeros == 1 && others == 0;
    return {};
  }
  return {};
}

Status PngChunks::read_animation_control(Bytes content) {
  const std::uint32_t frames = big_endian_32(content, 0);
  if (animation_frames_)
    animation_frames_.reset();
  else if (frames != 0 && frames <= 0x80000000U)
    animation_frames_ = frames;
  return {};
}

Status PngChunks::read_frame_control(Bytes content) {
  const std::uint32_t sequence = big_endian_32(content, 0);
  if (sequence_ ? *sequence_ + 1 != sequence : sequence != 0)
    return damage("the frames of the animation are out of sequence");
  sequence_ = sequence;
  header_.frame_width = big_endian_32(content, 4);
  header_.frame_height = big_endian_32(content, 8);
  header_.frame_x = big_endian_32(content, 12);
  header_.frame_y = big_endian_32(content, 16);
  has_frame_box_ = true;
  if (header_.frame_width == 0 || header_.frame_height == 0 ||
      std::uint64_t{header_.frame_x} + header_.frame_width > header_.width ||
      std::uint64_t{header_.frame_y} + header_.frame_height > header_.height) {
    return damage("a frame of the animation is outside the picture");
  }
  return {};
}

Result<bool> PngChunks::skip_frame_data(std::uint64_t length) {
  if (left() < std::min<std::uint64_t>(length, 4)) return damage("a chunk fdAT is truncated");
  if (length < 4) {
    skip(length);
    return true;
  }
  const std::uint32_t sequence = big_endian_32(bytes_, at_);
  if (!sequence_ || *sequence_ + 1 != sequence)
    return damage("the frames of the animation are out of sequence");
  sequence_ = sequence;
  const bool whole = length <= left();
  skip(length);
  return whole;
}

Status PngChunks::read_color_profile(std::string_view content) const {
  // Only its form: Pillow keeps the profile and does not apply it.
  const Split split = split_at_zero(content);
  const std::string_view rest = split.found ? split.tail : content;
  if (rest.empty() || rest[0] != '\0') return damage("the colour profile's compression is unknown");
  return {};
}

Status PngChunks::read_text(std::string_view content) {
  const Split split = split_at_zero(content);
  return set_text(split.head, std::string(split.tail), split.head == "exif");
}

Status PngChunks::read_compressed_text(std::string_view content) {
  const Split split = split_at_zero(content);
  if (!split.tail.empty() && split.tail[0] != '\0')
    return damage("a text's compression is unknown");
  std::string text;
  if (split.tail.size() > 1 && inflate_text(split.tail.substr(1), text) == Inflated::kTooLarge)
    text.clear();
  return set_text(split.head, std::move(text), false);
}

// keyword \0 compressed? method language \0 translated keyword \0 text
Status PngChunks::read_international_text(std::string_view content) {
  const Split key = split_at_zero(content);
  if (!key.found || key.tail.size() < 2) return {};
  const bool compressed = key.tail[0] != '\0';
  const bool known_method = key.tail[1] == '\0';
  const Split language = split_at_zero(key.tail.substr(2));
  const Split translated = split_at_zero(language.tail);
  if (!language.found || !translated.found) return {};
  std::string text(translated.tail);
  if (compressed) {
    if (!known_method) return {};
    if (inflate_text(translated.tail, text) != Inflated::kWhole) return {};
  }
  return set_text(key.head, std::move(text), false);
}

Status PngChunks::set_text(std::string_view key, std::string value, bool is_bytes) {
  if (key.empty()) return {};
  text_bytes_ += value.size();
  if (text_bytes_ > kMaxTextBytes) return damage("its texts are over 64 MiB");
  if (key == "exif") {
    metadata_.exif = std::move(value);
    exif_is_text_ = !is_bytes;
  } else if (key == "Raw profile type exif") {
    metadata_.hex_exif = std::move(value);
  } else if (key == "XML:com.adobe.xmp") {
    xmp_property_ = std::move(value);
  } else if (key == "xmp") {
    metadata_.xmp = std::move(value);
  }
  return {};
}

}  // namespace evalcar::vision
