#include "baton/archive/header.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "baton/base/error.h"

namespace baton::archive {
namespace {

using Json = nlohmann::json;

// A tensor or a metadata entry takes more memory than the shortest text that asks for it, so the number of both is limited.
constexpr std::size_t most_tensors = 250'000;
constexpr std::size_t most_metadata = 1'000;
constexpr std::size_t most_axes = 64;
constexpr std::uint64_t most_elements = std::uint64_t{1} << 48;

/// The part of the header to which the next event belongs.
enum class ParserState { before, top, metadata, entry, type, shape, offsets, ignored };

class Reader : public nlohmann::json_sax<Json> {
 public:
  explicit Reader(Header& header) : header_(header) {}

  const std::string& wrong() const { return wrong_; }

  bool null() override { return unsuitable(); }
  bool boolean(bool) override { return unsuitable(); }
  bool number_integer(number_integer_t) override { return unsuitable(); }
  bool number_float(number_float_t, const string_t&) override { return unsuitable(); }
  bool binary(binary_t&) override { return unsuitable(); }

  bool number_unsigned(number_unsigned_t number) override {
    if (state_ == ParserState::shape && in_list_) {
      if (entry().shape.size() == most_axes || number > most_elements / std::max<std::uint64_t>(1, entry().elements)) {
        return fail(fmt::format("{} has a shape that no tensor has", entry().name));
      }
      entry().elements *= number;
      entry().shape.push_back(static_cast<std::int64_t>(number));
      return true;
    }
    if (state_ == ParserState::offsets && in_list_ && offsets_ < 2) {
      (offsets_++ == 0 ? entry().begin : entry().end) = number;
      return true;
    }
    return unsuitable();
  }

  bool string(string_t& text) override {
    if (state_ == ParserState::metadata && !metadata_key_.empty()) {
      if (header_.metadata.size() == most_metadata) {
        return fail(fmt::format("it has more than {} metadata entries", most_metadata));
      }
      if (!header_.metadata.emplace(std::exchange(metadata_key_, {}), std::move(text)).second) {
        return fail("it has the same metadata entry twice");
      }
      return true;
    }
    if (state_ != ParserState::type) {
      return unsuitable();
    }
    if (const std::optional<ElementType> type = ElementType::by_name(text)) {
      entry().dtype = *type;
      state_ = ParserState::entry;
      return true;
    }
    return fail(fmt::format("{} is of the type {}, which is not supported", entry().name, text.substr(0, 40)));
  }

  bool start_object(std::size_t) override {
    if (state_ == ParserState::before) {
      state_ = ParserState::top;
      return true;
    }
    const bool begins = std::exchange(opening_, false);
    return begins || unsuitable();
  }

  bool key(string_t& name) override {
    if (state_ == ParserState::top) {
      opening_ = true;
      if (name == "__metadata__") {
        state_ = ParserState::metadata;
        return true;
      }
      if (header_.entries.size() == most_tensors) {
        return fail(fmt::format("it holds more than {} tensors", most_tensors));
      }
      header_.entries.push_back({.name = std::move(name)});
      state_ = ParserState::entry;
      known_ = {};
      return true;
    }
    if (state_ == ParserState::metadata) {
      metadata_key_ = std::move(name);
      return !metadata_key_.empty() || fail("it has a metadata entry without a name");
    }
    constexpr std::array<std::pair<std::string_view, ParserState>, 3> fields{
        {{"dtype", ParserState::type}, {"shape", ParserState::shape}, {"data_offsets", ParserState::offsets}}};
    for (std::size_t i = 0; i < fields.size(); ++i) {
      if (name == fields[i].first && !std::exchange(known_[i], true)) {
        state_ = fields[i].second;
        offsets_ = 0;
        return true;
      }
    }
    return unsuitable();
  }

  bool end_object() override {
    if (state_ == ParserState::entry && known_ != std::array{true, true, true}) {
      return unsuitable();
    }
    state_ = state_ == ParserState::top ? ParserState::ignored : ParserState::top;
    return true;
  }

  bool start_array(std::size_t) override {
    if ((state_ != ParserState::shape && state_ != ParserState::offsets) || std::exchange(in_list_, true)) {
      return unsuitable();
    }
    return true;
  }

  bool end_array() override {
    if (state_ == ParserState::offsets && offsets_ != 2) {
      return unsuitable();
    }
    in_list_ = false;
    state_ = ParserState::entry;
    return true;
  }

  bool parse_error(std::size_t, const std::string&, const Json::exception&) override { return fail("its header is not JSON"); }

 private:
  bool fail(std::string why) {
    wrong_ = std::move(why);
    return false;
  }
  bool unsuitable() {
    return state_ == ParserState::before     ? fail("its header is not JSON that begins with {")
           : state_ == ParserState::metadata ? fail("its metadata is not text")
                                             : fail(fmt::format("its entry of {} is not one", entry().name.substr(0, 200)));
  }
  Entry& entry() { return header_.entries.back(); }

  Header& header_;
  ParserState state_ = ParserState::before;
  bool opening_ = false;  // an object must begin
  bool in_list_ = false;
  int offsets_ = 0;              // how many of the two offsets are known
  std::array<bool, 3> known_{};  // which fields of the entry there were
  std::string metadata_key_;
  std::string wrong_;
};

/// True if some name or value is longer than any that a checkpoint has: copying it about would take several times its size.
bool has_endless_string(std::string_view text) {
  constexpr std::size_t longest = 1 << 16;
  std::size_t since = 0;  // the last quote
  for (std::size_t i = 0; i < text.size(); ++i) {
    since = text[i] == '"' ? i : since;
    if (i - since > longest && text[since] == '"') {
      return true;
    }
    i += text[i] == '\\' ? 1 : 0;  // and what it escapes
  }
  return false;
}

}  // namespace

std::string parse_header(std::string_view text, Header& header) {
  if (has_endless_string(text)) {
    return "it has a name or a value that does not end";
  }
  Reader reader(header);
  Json::sax_parse(text, &reader);
  return reader.wrong();
}

}  // namespace baton::archive
