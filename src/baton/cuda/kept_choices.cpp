#include "baton/cuda/kept_choices.h"

#include <fmt/format.h>

#include <bit>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <optional>
#include <system_error>

#include "baton/base/cache_folder.h"
#include "baton/base/error.h"
#include "baton/base/file.h"
#include "baton/base/hash.h"
#include "baton/base/text.h"

namespace baton::cuda {
namespace {

constexpr std::string_view title = "baton products 1";
constexpr std::string_view columns =
    "transpose_a transpose_b m n k operands result tf32 bias relu gelu alpha beta workspace turned algorithm";
constexpr std::size_t most_choices = 4096;
constexpr Bytes most_kept(std::int64_t{2} << 20);

std::string line_of(const ChoiceKey& key, const Choice& choice) {
  const ProductShape& s = key.shape;
  std::string line = fmt::format("{:d} {:d} {} {} {} {} {} {:d} {:d} {:d} {:d} {:08x} {:08x} {} {:d}", s.transpose_a, s.transpose_b,
                                 s.m, s.n, s.k, to_text(s.operands), to_text(s.result), s.tf32, s.bias, s.relu, s.gelu,
                                 std::bit_cast<std::uint32_t>(s.alpha), std::bit_cast<std::uint32_t>(s.beta), key.workspace,
                                 choice.turned);
  for (const std::uint64_t word : choice.algorithm) {
    line += fmt::format(" {:016x}", word);
  }
  return line;
}

/// Reads the words of a line one after the other; `good` is false from the first wrong word on.
class Words {
 public:
  explicit Words(std::string_view line) : words_(split(line, ' ')) {}

  bool done() const { return good_ && at_ == words_.size(); }

  template <typename Number>
  Number number(int base, Number least, Number most) {
    const std::string_view word = next();
    Number value{};
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value, base);
    good_ = good_ && error == std::errc() && end == word.data() + word.size() && value >= least && value <= most;
    return good_ ? value : least;
  }
  bool flag() { return number(10, 0, 1) == 1; }
  std::int64_t extent() { return number<std::int64_t>(10, 1, std::int64_t{1} << 40); }
  std::uint64_t word() { return number<std::uint64_t>(16, 0, ~std::uint64_t{0}); }
  float factor() {
    const auto value = std::bit_cast<float>(number<std::uint32_t>(16, 0, ~std::uint32_t{0}));
    good_ = good_ && std::isfinite(value);
    return good_ ? value : 0;
  }
  DType type() {
    const std::optional<DType> type = dtype_by_name(next());
    good_ = good_ && type.has_value() && (*type == DType::f32 || is_narrow(*type));
    return good_ ? *type : DType::f32;
  }

 private:
  std::string_view next() { return at_ < words_.size() ? words_[at_++] : (good_ = false, std::string_view()); }

  std::vector<std::string_view> words_;
  std::size_t at_ = 0;
  bool good_ = true;
};

/// Adds the choice of a line; false if the line is not one.
bool add_line(std::string_view line, Choices& choices) {
  Words words(line);
  ChoiceKey key;
  ProductShape& s = key.shape;
  s.transpose_a = words.flag();
  s.transpose_b = words.flag();
  s.m = words.extent();
  s.n = words.extent();
  s.k = words.extent();
  s.operands = words.type();
  s.result = words.type();
  s.tf32 = words.flag();
  s.bias = words.flag();
  s.relu = words.flag();
  s.gelu = words.flag();
  s.alpha = words.factor();
  s.beta = words.factor();
  key.workspace = words.number<std::int64_t>(10, 0, std::int64_t{1} << 50);
  Choice choice;
  choice.turned = words.flag();
  for (std::uint64_t& word : choice.algorithm) {
    word = words.word();
  }
  return words.done() && choices.emplace(key, choice).second;
}

/// The last line of a complete file.
std::string last_line(std::string_view before) { return fmt::format("end {:016x}\n", Hash(before).value()); }

}  // namespace

std::string format_choices(const Choices& choices, std::string_view kind) {
  check(kind.find('\n') == std::string_view::npos, "'{}' has several lines", kind);
  std::string text = fmt::format("{}\n{}\n{}\n", title, kind, columns);
  for (const auto& [key, choice] : choices) {
    text += line_of(key, choice) + '\n';
  }
  return text + last_line(text);
}

Choices parse_choices(std::string_view text, std::string_view kind) {
  const std::string head = fmt::format("{}\n{}\n{}\n", title, kind, columns);
  const std::size_t ending = last_line({}).size();
  if (!text.starts_with(head) || text.size() < head.size() + ending) {
    return {};
  }
  const std::string_view before = text.substr(0, text.size() - ending);
  if (!before.ends_with('\n') || text.substr(before.size()) != last_line(before)) {
    return {};
  }
  Choices choices;
  std::string_view lines = before.substr(head.size());
  while (!lines.empty()) {
    const std::size_t end = lines.find('\n');
    if (choices.size() == most_choices || !add_line(lines.substr(0, end), choices)) {
      return {};
    }
    lines.remove_prefix(end + 1);
  }
  return choices;
}

std::filesystem::path choices_folder() {
  const char* word = std::getenv("BATON_CUDA_CACHE");
  if (word == nullptr) {
    return cache_folder();
  }
  const std::string value = word;
  if (value != "off" && value.find('/') == std::string::npos) {
    throw usage_error("BATON_CUDA_CACHE is '{}': it may be off, or a folder's path with a / in it, or not set", value);
  }
  return value == "off" ? std::filesystem::path() : std::filesystem::path(value);
}

KeptChoices::KeptChoices(const std::filesystem::path& folder, std::string kind) : kind_(std::move(kind)) {
  if (!folder.empty()) {
    file_ = folder / fmt::format("products-{:016x}.txt", Hash(kind_).value());
    choices_ = read();
  }
}

Choices KeptChoices::read() const {
  std::error_code error;
  if (!std::filesystem::is_regular_file(file_, error)) {
    return {};
  }
  try {
    return parse_choices(read_file(file_, file_.string(), most_kept), kind_);
  } catch (const Error&) {
    return {};  // it cannot be read: all is chosen again
  }
}

const Choice* KeptChoices::find(const ChoiceKey& key) const {
  const auto found = choices_.find(key);
  return found == choices_.end() ? nullptr : &found->second;
}

void KeptChoices::keep(const ChoiceKey& key, const Choice& choice) {
  const bool replaced = choices_.contains(key);
  choices_[key] = choice;
  confirm(key);
  if (file_.empty()) {
    return;
  }
  Choices all = read();
  if (replaced) {
    all[key] = choice;
  }
  all.insert(choices_.begin(), choices_.end());
  if (all.size() > most_choices) {
    return;
  }
  std::error_code error;
  std::filesystem::create_directories(file_.parent_path(), error);
  try {
    write_whole(file_, format_choices(all, kind_));
  } catch (const Error&) {
    // It is kept for the process.
  }
}

}  // namespace baton::cuda
