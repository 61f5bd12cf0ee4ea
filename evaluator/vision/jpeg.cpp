// JPEG through libjpeg-turbo with Pillow's settings: default DCT and upsampling, the colour space
// that the library derives, four components taken as inverted CMYK. Where the bytes end too early,
// an end marker follows them, as Pillow has it where it is told to load truncated pictures: the
// library then makes up what is missing. Where it gives up, the rows that it has not written stay
// as Pillow makes them: black, of CMYK white.
//
// libjpeg reports errors by longjmp. Between setjmp and the last library call only plain data is
// touched (struct Session), so no destructor is jumped over.
#include <algorithm>
#include <csetjmp>
#include <cstdio>
#include <cstring>

#include <jerror.h>
#include <jpeglib.h>

#include "evaluator/vision/jpeg_header.h"
#include "evaluator/vision/metadata.h"

namespace evalcar::vision {
namespace {

// A progressive file may hold thousands of empty scans, each costing a pass over the picture; real
// encoders write a dozen. libjpeg-turbo's own fuzzers stop at 500 too.
constexpr int kMaxScans = 500;

constexpr JOCTET kEndMarker[] = {0xff, JPEG_EOI};

enum class End { kDone, kIncomplete, kUnreadable, kOtherSize };

struct Session {
  jpeg_decompress_struct decoder;
  jpeg_error_mgr errors;
  jpeg_source_mgr source;
  jpeg_progress_mgr progress;
  std::jmp_buf jump;
  bool has_ended;         // the end marker was made up
  bool unreadable;        // it may be whole for another version of the library
  std::size_t skip_left;  // bytes after the end of the file that were to be skipped
  char message[JMSG_LENGTH_MAX];
  std::uint8_t* pixels;  // (height, width, 3)
  std::uint8_t* row;     // (width, 4): a row of CMYK or grey
  int width;
  int height;
  int components;
};

Session& session_of(j_common_ptr decoder) { return *static_cast<Session*>(decoder->client_data); }

// What this version of the library cannot do says nothing of the file.
bool is_of_library(int code) {
  constexpr int kCodes[] = {JERR_ARITH_NOTIMPL,      JERR_BAD_PRECISION, JERR_CCIR601_NOTIMPL,
                            JERR_CONVERSION_NOTIMPL, JERR_NOT_COMPILED,  JERR_FRACT_SAMPLE_NOTIMPL,
                            JERR_OUT_OF_MEMORY,      JERR_NOTIMPL,       JERR_SOF_UNSUPPORTED};
  return std::find(std::begin(kCodes), std::end(kCodes), code) != std::end(kCodes);
}

void on_error(j_common_ptr decoder) {
  Session& session = session_of(decoder);
  session.errors.format_message(decoder, session.message);
  session.unreadable = is_of_library(session.errors.msg_code);
  std::longjmp(session.jump, 1);
}

void on_progress(j_common_ptr decoder) {
  Session& session = session_of(decoder);
  if (session.decoder.input_scan_number <= kMaxScans) return;
  std::snprintf(session.message, sizeof session.message, "it has over %d scans", kMaxScans);
  session.unreadable = true;
  std::longjmp(session.jump, 1);
}

void skip_input(j_decompress_ptr decoder, long count) {
  if (count <= 0) return;
  jpeg_source_mgr& source = *decoder->src;
  const auto wanted = static_cast<std::size_t>(count);
  const std::size_t step = std::min(wanted, source.bytes_in_buffer);
  source.next_input_byte += step;
  source.bytes_in_buffer -= step;
  session_of(reinterpret_cast<j_common_ptr>(decoder)).skip_left = wanted - step;
}

// After the file's bytes; false, which suspends the library for good, after the marker.
boolean make_up_end(j_decompress_ptr decoder) {
  Session& session = session_of(reinterpret_cast<j_common_ptr>(decoder));
  if (session.has_ended) return FALSE;
  session.has_ended = true;
  session.source.next_input_byte = kEndMarker;
  session.source.bytes_in_buffer = sizeof kEndMarker;
  skip_input(decoder, static_cast<long>(session.skip_left));
  return session.source.bytes_in_buffer > 0 ? TRUE : FALSE;
}

// Whether the library smooths between blocks, as coefficients are not known to the last bit. Where
// colours have fewer rows, its version 2 does that otherwise than 3, which Pillow has.
bool smooths_as_version_2(const jpeg_decompress_struct& decoder) {
  if (decoder.coef_bits == nullptr || decoder.max_v_samp_factor == 1) return false;
  constexpr int kLooksAt = 10;  // of each block
  bool smooths = false;
  for (int c = 0; c < decoder.num_components; ++c) {
    const int* const bits = decoder.coef_bits[c];
    if (bits[0] < 0) return false;  // not without each block's mean
    smooths =
        smooths || std::any_of(bits + 1, bits + kLooksAt, [](int missing) { return missing != 0; });
  }
  return smooths;
}

// Pillow's MULDIV255: a * b / 255, rounded.
int multiply_255(int a, int b) {
  const int t = a * b + 128;
  return ((t >> 8) + t) >> 8;
}

void store_row(const Session& session, int y) {
  const auto width = static_cast<std::size_t>(session.width);
  std::uint8_t* out = session.pixels + static_cast<std::size_t>(y) * width * 3;
  const std::uint8_t* in = session.row;
  if (session.components == 1) {
    for (std::size_t x = 0; x < width; ++x, out += 3) out[0] = out[1] = out[2] = in[x];
    return;
  }
  for (std::size_t x = 0; x < width; ++x, in += 4, out += 3) {
    const int light = in[3];  // 255 - K, K being inverted in the file
    for (int c = 0; c < 3; ++c)
      out[c] = static_cast<std::uint8_t>(light - multiply_255(255 - in[c], light));
  }
}

// From the header on, as many rows as there are.
End read_rows(Session& session) {
  jpeg_decompress_struct& decoder = session.decoder;
  if (decoder.image_width != static_cast<JDIMENSION>(session.width) ||
      decoder.image_height != static_cast<JDIMENSION>(session.height) ||
      decoder.num_components != session.components) {
    return End::kOtherSize;
  }
  decoder.out_color_space = session.components == 1   ? JCS_GRAYSCALE
                            : session.components == 3 ? JCS_RGB
                                                      : JCS_CMYK;
  if (jpeg_start_decompress(&decoder) == FALSE) return End::kIncomplete;
  if (session.has_ended && smooths_as_version_2(decoder)) {
    std::snprintf(session.message, sizeof session.message,
                  "it is cut off before the last scan of progressive 4:2:0");
    return End::kUnreadable;
  }
  for (int y = 0; y < session.height; ++y) {
    JSAMPROW row = session.components == 3
                       ? session.pixels + static_cast<std::size_t>(y) *
                                              static_cast<std::size_t>(session.width) * 3
                       : session.row;
    if (jpeg_read_scanlines(&decoder, &row, 1) != 1) return End::kIncomplete;
    if (session.components != 3) store_row(session, y);
  }
  const End end = session.has_ended ? End::kIncomplete : End::kDone;
  // Whatever is missing after the last row is forgiven, as Pillow does.
  jpeg_finish_decompress(&decoder);
  return end;
}

End run_decoder(Session& session, Bytes bytes) {
  jpeg_decompress_struct& decoder = session.decoder;
  decoder.err = jpeg_std_error(&session.errors);
  decoder.client_data = &session;
  session.errors.error_exit = on_error;
  session.errors.output_message = [](j_common_ptr) {};
  if (setjmp(session.jump) != 0) {
    jpeg_destroy_decompress(&decoder);
    return session.unreadable ? End::kUnreadable : End::kIncomplete;
  }
  jpeg_create_decompress(&decoder);
  decoder.client_data = &session;
  decoder.progress = &session.progress;
  session.progress.progress_monitor = on_progress;
  decoder.src = &session.source;
  session.source.init_source = [](j_decompress_ptr) {};
  session.source.term_source = [](j_decompress_ptr) {};
  session.source.fill_input_buffer = make_up_end;
  session.source.skip_input_data = skip_input;
  session.source.resync_to_restart = jpeg_resync_to_restart;
  session.source.next_input_byte = reinterpret_cast<const JOCTET*>(bytes.data());
  session.source.bytes_in_buffer = bytes.size();

  int found = JPEG_HEADER_TABLES_ONLY;
  while (found == JPEG_HEADER_TABLES_ONLY) found = jpeg_read_header(&decoder, FALSE);
  const End end = found == JPEG_HEADER_OK ? read_rows(session) : End::kIncomplete;
  jpeg_destroy_decompress(&decoder);
  return end;
}

}  // namespace

Result<Decoded> decode_jpeg(Bytes bytes, std::string_view name, const DecodeLimits& limits,
                            Want want) {
  EVALCAR_ASSIGN_OR_RETURN(JpegHeader header, read_jpeg_header(bytes, name));
  EVALCAR_RETURN_IF_ERROR(check_size(static_cast<std::uint64_t>(header.width),
                                     static_cast<std::uint64_t>(header.height), name, limits));
  Decoded decoded;
  decoded.size = {header.width, header.height};
  // Within a scan's data these bytes cannot follow each other.
  constexpr std::string_view kMarker{"\xff\xd9"};
  decoded.is_cut_off = text_of(bytes).find(kMarker, header.scan) == std::string_view::npos;
  decoded.metadata = std::move(header.metadata);
  if (want == Want::kSize) return decoded;

  const auto width = static_cast<std::size_t>(header.width);
  decoded.image.width = header.width;
  decoded.image.height = header.height;
  const std::uint8_t unwritten = header.components == 4 ? 255 : 0;
  decoded.image.rgb.resize(width * static_cast<std::size_t>(header.height) * 3, unwritten);
  std::vector<std::uint8_t> row(width * 4);
  Session session{};
  session.pixels = decoded.image.rgb.data();
  session.row = row.data();
  session.width = header.width;
  session.height = header.height;
  session.components = header.components;
  switch (run_decoder(session, bytes)) {
    case End::kDone:
      return decoded;
    case End::kIncomplete:
      decoded.image.is_incomplete = true;
      return decoded;
    case End::kOtherSize:
      return damaged(name, "JPEG", "two frame headers disagree on the size");
    case End::kUnreadable:
      break;
  }
  return damaged(name, "JPEG", std::string("it cannot be read: ") + session.message);
}

}  // namespace evalcar::vision
