// WebP through libwebp's animation decoder, which Pillow uses for still pictures too: the first
// frame on its canvas, alpha dropped.
#include <memory>

#include <webp/demux.h>

#include "evaluator/vision/metadata.h"

namespace evalcar::vision {
namespace {

struct DemuxerDeleter {
  void operator()(WebPDemuxer* demuxer) const { WebPDemuxDelete(demuxer); }
};
struct DecoderDeleter {
  void operator()(WebPAnimDecoder* decoder) const { WebPAnimDecoderDelete(decoder); }
};

std::string find_chunk(const WebPDemuxer* demuxer, const char* fourcc) {
  WebPChunkIterator chunk;
  std::string content;
  if (WebPDemuxGetChunk(demuxer, fourcc, 1, &chunk) != 0) {
    content.assign(reinterpret_cast<const char*>(chunk.chunk.bytes), chunk.chunk.size);
    WebPDemuxReleaseChunkIterator(&chunk);
  }
  return content;
}

}  // namespace

Result<Decoded> decode_webp(Bytes bytes, std::string_view name, const DecodeLimits& limits,
                            Want want) {
  WebPData data;
  data.bytes = reinterpret_cast<const std::uint8_t*>(bytes.data());
  data.size = bytes.size();
  const std::unique_ptr<WebPDemuxer, DemuxerDeleter> demuxer(WebPDemux(&data));
  if (!demuxer) return damaged(name, "WebP", "the file is truncated or its chunks are damaged");
  const std::uint32_t width = WebPDemuxGetI(demuxer.get(), WEBP_FF_CANVAS_WIDTH);
  const std::uint32_t height = WebPDemuxGetI(demuxer.get(), WEBP_FF_CANVAS_HEIGHT);
  EVALCAR_RETURN_IF_ERROR(check_size(width, height, name, limits));
  Decoded decoded;
  decoded.size = {static_cast<int>(width), static_cast<int>(height)};
  if (std::string exif = find_chunk(demuxer.get(), "EXIF"); !exif.empty())
    decoded.metadata.exif = std::move(exif);
  decoded.metadata.xmp = find_chunk(demuxer.get(), "XMP ");
  if (want == Want::kSize) return decoded;

  WebPAnimDecoderOptions options;
  if (WebPAnimDecoderOptionsInit(&options) == 0)
    return make_error(ErrorCode::kInternal, "libwebpdemux has another version than its headers");
  options.color_mode = MODE_RGBA;
  const std::unique_ptr<WebPAnimDecoder, DecoderDeleter> decoder(
      WebPAnimDecoderNew(&data, &options));
  if (!decoder) return damaged(name, "WebP", "the decoder refuses the file");
  std::uint8_t* canvas = nullptr;  // (height, width, 4), the decoder's
  int timestamp_ms = 0;
  if (WebPAnimDecoderGetNext(decoder.get(), &canvas, &timestamp_ms) == 0)
    return damaged(name, "WebP", "the picture data is damaged");
  decoded.image.width = decoded.size.width;
  decoded.image.height = decoded.size.height;
  const std::size_t pixels = static_cast<std::size_t>(width) * height;
  decoded.image.rgb.resize(pixels * 3);
  std::uint8_t* out = decoded.image.rgb.data();
  for (std::size_t i = 0; i < pixels; ++i, canvas += 4, out += 3) {
    out[0] = canvas[0];
    out[1] = canvas[1];
    out[2] = canvas[2];
  }
  return decoded;
}

}  // namespace evalcar::vision
