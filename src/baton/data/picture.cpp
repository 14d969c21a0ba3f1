#include "baton/data/picture.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <csetjmp>
#include <cstdio>
#include <cstring>
#include <new>

#include "baton/base/error.h"
#include "baton/data/blob.h"
#ifdef BATON_PNG
#include <png.h>
#endif
#ifdef BATON_JPEG
#include <jpeglib.h>
#endif

namespace baton::data {
namespace {

/// The most pixels that a byte can say. PNG: a pixel takes a bit, and deflate packs 1032 times. JPEG: a block of 8 x 8 takes a bit.
constexpr std::uint64_t png_pixels_per_byte = std::uint64_t{8} * 1032;
constexpr std::uint64_t jpeg_pixels_per_byte = std::uint64_t{8} * 64;

void require_plausible(std::uint64_t width, std::uint64_t height, std::uint64_t most, const std::string& name) {
  constexpr std::uint64_t longest = 1 << 15;
  constexpr std::uint64_t most_pixels = std::uint64_t{1} << 26;
  if (width == 0 || height == 0 || width > longest || height > longest || width * height > most_pixels || width * height > most) {
    throw unusable(name, fmt::format("it says that it is {} x {} pixels, which it cannot be", width, height));
  }
}

/// From pixel after pixel to channel after channel.
[[maybe_unused]] Picture in_planes(const std::vector<std::uint8_t>& pixels, std::size_t width, std::size_t height,
                                   std::size_t channels) {
  Picture made{.channels = static_cast<std::int64_t>(channels),
               .height = static_cast<std::int64_t>(height),
               .width = static_cast<std::int64_t>(width),
               .pixels = std::vector<std::uint8_t>(width * height * channels)};
  for (std::size_t i = 0; i < width * height; ++i) {
    for (std::size_t c = 0; c < channels; ++c) {
      made.pixels[c * width * height + i] = pixels[i * channels + c];
    }
  }
  return made;
}

#ifdef BATON_PNG
/// The place to which the library jumps back after an error, its message, and the bytes that are left to read.
struct PngState {
  std::jmp_buf back;
  std::array<char, 128> message{};
  std::span<const std::byte> rest;
};

/// The library ends a call by calling this, which must not return.
void fail_png(png_structp png, png_const_charp message) {
  auto* state = static_cast<PngState*>(png_get_error_ptr(png));
  std::snprintf(state->message.data(), state->message.size(), "%s", message);
  std::longjmp(state->back, 1);  // NOLINT: the library knows no exceptions
}

void stay_silent(png_structp, png_const_charp) {}

void take_bytes(png_structp png, png_bytep into, std::size_t count) {
  auto* state = static_cast<PngState*>(png_get_io_ptr(png));
  if (count > state->rest.size()) {
    png_error(png, "the file is cut");
  }
  std::memcpy(into, state->rest.data(), count);
  state->rest = state->rest.subspan(count);
}

/// One picture being read, as 8 bits per sample without transparency. The upper 8 bits of samples of 16 are taken, and what the
/// file says of the brightness of screens changes nothing. Nothing in the calls of the library needs to be destroyed where it
/// jumps.
class PngReader {
 public:
  explicit PngReader(std::span<const std::byte> bytes) {
    state_.rest = bytes;
    png_ = png_create_read_struct(PNG_LIBPNG_VER_STRING, &state_, fail_png, stay_silent);
    info_ = png_ == nullptr ? nullptr : png_create_info_struct(png_);
    if (info_ == nullptr) {
      png_destroy_read_struct(&png_, nullptr, nullptr);
      throw std::bad_alloc();
    }
  }
  ~PngReader() { png_destroy_read_struct(&png_, &info_, nullptr); }
  PngReader(const PngReader&) = delete;
  PngReader& operator=(const PngReader&) = delete;

  const char* message() const { return state_.message.data(); }
  std::size_t width() const { return png_get_image_width(png_, info_); }
  std::size_t height() const { return png_get_image_height(png_, info_); }
  /// After `prepare`.
  std::size_t channels() const { return png_get_channels(png_, info_); }
  std::size_t row_bytes() const { return png_get_rowbytes(png_, info_); }

  bool read_header() {
    if (setjmp(state_.back) != 0) {  // NOLINT: as above
      return false;
    }
    png_set_read_fn(png_, &state_, take_bytes);
#ifdef PNG_SET_UNKNOWN_CHUNKS_SUPPORTED
    png_set_keep_unknown_chunks(png_, PNG_HANDLE_CHUNK_NEVER, nullptr, -1);  // what is about screens, colour spaces and texts
#endif
    png_read_info(png_, info_);
    return true;
  }
  /// Takes memory for some rows.
  bool prepare() {
    if (setjmp(state_.back) != 0) {  // NOLINT: as above
      return false;
    }
    png_set_expand(png_);
    png_set_strip_16(png_);
    png_set_strip_alpha(png_);
    png_set_interlace_handling(png_);
    png_read_update_info(png_, info_);
    return true;
  }
  bool read_pixels(png_bytepp rows) {
    if (setjmp(state_.back) != 0) {  // NOLINT: as above
      return false;
    }
    png_read_image(png_, rows);
    return true;
  }

 private:
  PngState state_;
  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
};

Picture decode_png(std::span<const std::byte> bytes, const std::string& name) {
  PngReader png(bytes);
  const auto damaged = [&] { return unusable(name, fmt::format("it is damaged ({})", png.message())); };
  if (!png.read_header()) {
    throw damaged();
  }
  require_plausible(png.width(), png.height(), bytes.size() * png_pixels_per_byte, name);
  if (!png.prepare()) {
    throw damaged();
  }
  const std::size_t channels = png.channels();
  check((channels == 1 || channels == 3) && png.row_bytes() == png.width() * channels,
        "{} bytes per row of {} pixels of {} channels", png.row_bytes(), png.width(), channels);
  std::vector<std::uint8_t> pixels(png.width() * png.height() * channels);
  std::vector<png_bytep> rows(png.height());
  for (std::size_t y = 0; y < rows.size(); ++y) {
    rows[y] = pixels.data() + y * png.width() * channels;
  }
  if (!png.read_pixels(rows.data())) {
    throw damaged();
  }
  return in_planes(pixels, png.width(), png.height(), channels);
}
#endif

#ifdef BATON_JPEG
/// The library ends a call by calling this, which must not return: it jumps to where the call began.
struct JpegErrors {
  jpeg_error_mgr manager;
  std::jmp_buf back;
  char message[JMSG_LENGTH_MAX];
};

void fail_jpeg(j_common_ptr info) {
  auto* errors = reinterpret_cast<JpegErrors*>(info->err);
  info->err->format_message(info, errors->message);
  std::longjmp(errors->back, 1);  // NOLINT: the library knows no exceptions
}

void stay_silent(j_common_ptr) {}

/// A file of few bytes may hold more passes over the whole picture than anyone would wait for.
void watch_passes(j_common_ptr info) {
  constexpr int most_passes = 200;
  if (info->is_decompressor != 0 && reinterpret_cast<j_decompress_ptr>(info)->input_scan_number > most_passes) {
    auto* errors = reinterpret_cast<JpegErrors*>(info->err);
    std::snprintf(errors->message, sizeof errors->message, "it has too many passes");
    std::longjmp(errors->back, 1);  // NOLINT: as above
  }
}

/// One picture being read. Nothing in the calls of the library needs to be destroyed where it jumps.
struct JpegReader {
  jpeg_decompress_struct info{};
  JpegErrors errors{};
  jpeg_progress_mgr progress{};

  explicit JpegReader() {
    info.err = jpeg_std_error(&errors.manager);
    errors.manager.error_exit = fail_jpeg;
    errors.manager.output_message = stay_silent;
    progress.progress_monitor = watch_passes;
  }
  ~JpegReader() { jpeg_destroy_decompress(&info); }
  JpegReader(const JpegReader&) = delete;
  JpegReader& operator=(const JpegReader&) = delete;

  bool read_header(const unsigned char* bytes, unsigned long size) {
    if (setjmp(errors.back) != 0) {  // NOLINT: as above
      return false;
    }
    jpeg_create_decompress(&info);
    info.progress = &progress;
    jpeg_mem_src(&info, bytes, size);
    jpeg_read_header(&info, TRUE);
    info.out_color_space = info.num_components == 1 ? JCS_GRAYSCALE : JCS_RGB;
    jpeg_calc_output_dimensions(&info);
    return true;
  }
  bool read_pixels(unsigned char* pixels) {
    if (setjmp(errors.back) != 0) {  // NOLINT: as above
      return false;
    }
    jpeg_start_decompress(&info);
    const std::size_t line = static_cast<std::size_t>(info.output_width) * static_cast<std::size_t>(info.output_components);
    while (info.output_scanline < info.output_height) {
      JSAMPROW row = pixels + info.output_scanline * line;
      jpeg_read_scanlines(&info, &row, 1);
    }
    jpeg_finish_decompress(&info);
    return true;
  }
};

Picture decode_jpeg(std::span<const std::byte> bytes, const std::string& name) {
  JpegReader jpeg;
  if (!jpeg.read_header(reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size())) {
    throw unusable(name, fmt::format("it is damaged ({})", jpeg.errors.message));
  }
  if (jpeg.info.arith_code != 0) {
    throw unusable(name, "it is packed by arithmetic coding, which is not supported");
  }
  require_plausible(jpeg.info.image_width, jpeg.info.image_height, bytes.size() * jpeg_pixels_per_byte, name);
  const std::size_t channels = jpeg.info.num_components == 1 ? 1 : 3;
  std::vector<std::uint8_t> pixels(static_cast<std::size_t>(jpeg.info.output_width) * jpeg.info.output_height * channels);
  if (!jpeg.read_pixels(pixels.data())) {
    throw unusable(name, fmt::format("it is damaged ({})", jpeg.errors.message));
  }
  if (jpeg.errors.manager.num_warnings > 0) {  // the rest would be gray
    throw unusable(name, "it is cut or damaged");
  }
  return in_planes(pixels, jpeg.info.output_width, jpeg.info.output_height, channels);
}
#endif

bool begins_with(std::span<const std::byte> bytes, std::string_view beginning) {
  return bytes.size() >= beginning.size() && std::memcmp(bytes.data(), beginning.data(), beginning.size()) == 0;
}

[[maybe_unused]] Picture refuse_format(const std::string& name, const char* format, const char* package) {
  throw unusable(name,
                 fmt::format("it is {}, and this program was built without that: install {} and build again", format, package));
}

}  // namespace

bool reads_png() {
#ifdef BATON_PNG
  return true;
#else
  return false;
#endif
}

bool reads_jpeg() {
#ifdef BATON_JPEG
  return true;
#else
  return false;
#endif
}

Picture decode_picture(std::span<const std::byte> bytes, const std::string& name) {
  if (begins_with(bytes, "\x89PNG\r\n\x1a\n")) {
#ifdef BATON_PNG
    return decode_png(bytes, name);
#else
    return refuse_format(name, "PNG", "libpng-dev");
#endif
  }
  if (begins_with(bytes, "\xff\xd8\xff")) {
#ifdef BATON_JPEG
    return decode_jpeg(bytes, name);
#else
    return refuse_format(name, "JPEG", "libjpeg-dev");
#endif
  }
  throw unusable(name, "it is neither PNG nor JPEG");
}

}  // namespace baton::data
