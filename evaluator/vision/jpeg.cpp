// JPEG through libjpeg-turbo with Pillow's settings: default DCT and upsampling, the colour space
// that the library derives, four components taken as inverted CMYK. The source suspends at the end
// of the bytes, as Pillow's does, so a truncated file is told apart from a finished one.
//
// libjpeg reports errors by longjmp. Between setjmp and the last library call only plain data is
// touched (struct Session), so no destructor is jumped over.
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

enum class End { kDone, kTruncated, kBroken, kOtherSize };

struct Session {
  jpeg_decompress_struct decoder;
  jpeg_error_mgr errors;
  jpeg_source_mgr source;
  jpeg_progress_mgr progress;
  std::jmp_buf jump;
  char message[JMSG_LENGTH_MAX];
  std::uint8_t* pixels;  // (height, width, 3)
  std::uint8_t* row;     // (width, 4): a row of CMYK or grey
  int width;
  int height;
  int components;
};

Session& session_of(j_common_ptr decoder) { return *static_cast<Session*>(decoder->client_data); }

void on_error(j_common_ptr decoder) {
  Session& session = session_of(decoder);
  session.errors.format_message(decoder, session.message);
  std::longjmp(session.jump, 1);
}

void on_progress(j_common_ptr decoder) {
  Session& session = session_of(decoder);
  if (session.decoder.input_scan_number <= kMaxScans) return;
  std::snprintf(session.message, sizeof session.message, "it has over %d scans", kMaxScans);
  std::longjmp(session.jump, 1);
}

void skip_input(j_decompress_ptr decoder, long count) {
  jpeg_source_mgr& source = *decoder->src;
  if (count <= 0) return;
  // Past the end: nothing is left, and the next read suspends.
  const std::size_t step = static_cast<std::size_t>(count) < source.bytes_in_buffer
                               ? static_cast<std::size_t>(count)
                               : source.bytes_in_buffer;
  source.next_input_byte += step;
  source.bytes_in_buffer -= step;
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

End run_decoder(Session& session, Bytes bytes) {
  jpeg_decompress_struct& decoder = session.decoder;
  decoder.err = jpeg_std_error(&session.errors);
  decoder.client_data = &session;
  session.errors.error_exit = on_error;
  session.errors.output_message = [](j_common_ptr) {};
  if (setjmp(session.jump) != 0) {
    jpeg_destroy_decompress(&decoder);
    return End::kBroken;
  }
  jpeg_create_decompress(&decoder);
  decoder.client_data = &session;
  decoder.progress = &session.progress;
  session.progress.progress_monitor = on_progress;
  decoder.src = &session.source;
  session.source.init_source = [](j_decompress_ptr) {};
  session.source.term_source = [](j_decompress_ptr) {};
  session.source.fill_input_buffer = [](j_decompress_ptr) -> boolean { return FALSE; };
  session.source.skip_input_data = skip_input;
  session.source.resync_to_restart = jpeg_resync_to_restart;
  session.source.next_input_byte = reinterpret_cast<const JOCTET*>(bytes.data());
  session.source.bytes_in_buffer = bytes.size();

  End end = End::kTruncated;
  int found = JPEG_HEADER_TABLES_ONLY;
  while (found == JPEG_HEADER_TABLES_ONLY) found = jpeg_read_header(&decoder, FALSE);
  if (found == JPEG_HEADER_OK) {
    if (decoder.image_width != static_cast<JDIMENSION>(session.width) ||
        decoder.image_height != static_cast<JDIMENSION>(session.height) ||
        decoder.num_components != session.components) {
      end = End::kOtherSize;
    } else {
      decoder.out_color_space = session.components == 1   ? JCS_GRAYSCALE
                                : session.components == 3 ? JCS_RGB
                                                          : JCS_CMYK;
      if (jpeg_start_decompress(&decoder) != FALSE) {
        int y = 0;
        while (y < session.height) {
          JSAMPROW row = session.components == 3
                             ? session.pixels + static_cast<std::size_t>(y) *
                                                    static_cast<std::size_t>(session.width) * 3
                             : session.row;
          if (jpeg_read_scanlines(&decoder, &row, 1) != 1) break;
          if (session.components != 3) store_row(session, y);
          ++y;
        }
        if (y == session.height) {
          // Whatever is missing after the last row is forgiven, as Pillow does.
          jpeg_finish_decompress(&decoder);
          end = End::kDone;
        }
      }
    }
  }
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
  decoded.metadata = std::move(header.metadata);
  if (want == Want::kSize) return decoded;

  const auto width = static_cast<std::size_t>(header.width);
  decoded.image.width = header.width;
  decoded.image.height = header.height;
  decoded.image.rgb.resize(width * static_cast<std::size_t>(header.height) * 3);
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
    case End::kTruncated:
      return damaged(name, "JPEG", "the file is truncated");
    case End::kOtherSize:
      return damaged(name, "JPEG", "two frame headers disagree on the size");
    case End::kBroken:
      break;
  }
  return damaged(name, "JPEG", std::string("the data is broken: ") + session.message);
}

}  // namespace evalcar::vision
