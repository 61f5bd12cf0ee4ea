// libjpeg reports errors by longjmp. Between setjmp and the last library call only plain data is
// touched (struct Encoder), so no destructor is jumped over.
#include "evaluator/vision/small_picture.h"

#include <algorithm>
#include <cmath>
#include <csetjmp>
#include <cstdio>
#include <cstdlib>
#include <string>

#include <jpeglib.h>

#include "evaluator/vision/resample.h"

namespace evalcar::vision {
namespace {

constexpr int kQuality = 85;

struct Encoder {
  jpeg_compress_struct encoder;
  jpeg_error_mgr errors;
  std::jmp_buf jump;
  char message[JMSG_LENGTH_MAX];
  unsigned char* bytes;  // of libjpeg, by malloc
  unsigned long size;
};

void on_error(j_common_ptr encoder) {
  Encoder& own = *static_cast<Encoder*>(encoder->client_data);
  own.errors.format_message(encoder, own.message);
  std::longjmp(own.jump, 1);
}

bool run_encoder(Encoder& own, const std::uint8_t* rgb, int width, int height) {
  jpeg_compress_struct& encoder = own.encoder;
  encoder.err = jpeg_std_error(&own.errors);
  encoder.client_data = &own;
  own.errors.error_exit = on_error;
  own.errors.output_message = [](j_common_ptr) {};
  if (setjmp(own.jump) != 0) {
    jpeg_destroy_compress(&encoder);
    return false;
  }
  jpeg_create_compress(&encoder);
  encoder.client_data = &own;
  jpeg_mem_dest(&encoder, &own.bytes, &own.size);
  encoder.image_width = static_cast<JDIMENSION>(width);
  encoder.image_height = static_cast<JDIMENSION>(height);
  encoder.input_components = 3;
  encoder.in_color_space = JCS_RGB;
  jpeg_set_defaults(&encoder);
  jpeg_set_quality(&encoder, kQuality, TRUE);
  encoder.comp_info[0].h_samp_factor = encoder.comp_info[0].v_samp_factor = 1;
  encoder.optimize_coding = TRUE;
  jpeg_start_compress(&encoder, TRUE);
  while (encoder.next_scanline < encoder.image_height) {
    const std::size_t offset =
        static_cast<std::size_t>(encoder.next_scanline) * static_cast<std::size_t>(width) * 3;
    JSAMPROW row = const_cast<JSAMPROW>(rgb + offset);  // it reads
    jpeg_write_scanlines(&encoder, &row, 1);
  }
  jpeg_finish_compress(&encoder);
  jpeg_destroy_compress(&encoder);
  return true;
}

Result<std::vector<std::byte>> encode(const Image& image) {
  Encoder own{};
  const bool done = run_encoder(own, image.rgb.data(), image.width, image.height);
  std::vector<std::byte> bytes;
  if (done) {
    const auto all = std::as_bytes(std::span(own.bytes, own.size));
    bytes.assign(all.begin(), all.end());
  }
  std::free(own.bytes);  // NOLINT(cppcoreguidelines-no-malloc): libjpeg's own
  if (done) return bytes;
  return make_error(ErrorCode::kInternal, std::string("a small picture: ") + own.message);
}

/// Of the two whole numbers around `exact`, the one whose picture is closest to the proportions.
template <typename Error>
int closest(double exact, const Error& error) {
  const int below = static_cast<int>(std::floor(exact));
  const int above = static_cast<int>(std::ceil(exact));
  return std::max(1, error(above) < error(below) ? above : below);
}

}  // namespace

ImageSize small_size(int width, int height, int side) {
  if (width <= side && height <= side) return {width, height};
  const double ratio = static_cast<double>(width) / height;
  if (ratio <= 1) {
    return {closest(side * ratio, [&](int n) { return std::abs(ratio - n / double(side)); }), side};
  }
  return {side, closest(side / ratio,
                        [&](int n) { return n == 0 ? 0.0 : std::abs(ratio - side / double(n)); })};
}

Result<std::vector<std::byte>> small_jpeg(const Image& image, int side) {
  if (image.width <= 0 || image.height <= 0) {
    return make_error(ErrorCode::kInvalidArgument, "a small picture: of a picture without pixels");
  }
  const ImageSize size = small_size(image.width, image.height, side);
  if (size.width == image.width && size.height == image.height) return encode(image);
  EVALCAR_ASSIGN_OR_RETURN(const Image small,
                           resize_bicubic(image, size.height, size.width, Resampler::kPillow));
  return encode(small);
}

}  // namespace evalcar::vision
